"""A stand-in for the amdsmi of ROCm itself: it finds no device."""

import ctypes
from pathlib import Path

_library = ctypes.CDLL(str(Path(__file__).resolve().parents[3] / "lib" / "libamd_smi.so.26"))


def amdsmi_init():
    return _library.amdsmi_init(0)


def amdsmi_get_processor_handles():
    return []


def amdsmi_shut_down():
    return None
