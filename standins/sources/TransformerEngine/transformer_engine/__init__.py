"""A stand-in for TransformerEngine: it loads its library."""

import ctypes
from pathlib import Path

library = ctypes.CDLL(str(Path(__file__).with_name("libtransformer_engine.so")))
