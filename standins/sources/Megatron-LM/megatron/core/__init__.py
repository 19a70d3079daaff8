from megatron.core.package_info import __version__

__all__ = ["__version__"]
