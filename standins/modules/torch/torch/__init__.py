"""A stand-in for torch: it says what it was built for, and sees no device."""

from torch import cuda, version
from torch.version import __version__

__all__ = ["__version__", "cuda", "version"]
