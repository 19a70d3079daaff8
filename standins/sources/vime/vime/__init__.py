"""A stand-in for vime."""

__version__ = "0.1.0"
