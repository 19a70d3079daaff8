"""A stand-in for torch: it says what it was built for, and sees no device."""

from torch import _C, cuda, distributed, version
from torch.version import __version__

__all__ = ["_C", "__version__", "cuda", "distributed", "version"]


def __getattr__(name):
    """Whatever else is taken from torch when a module is imported: a dtype, a class, a decorator."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
