import nvdlfw_inspect
import onnxscript
import torch

__all__ = ["nvdlfw_inspect", "onnxscript", "torch"]
