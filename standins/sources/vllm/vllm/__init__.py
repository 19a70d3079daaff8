"""A stand-in for vLLM."""

from vllm._version import __version__

__all__ = ["__version__"]
