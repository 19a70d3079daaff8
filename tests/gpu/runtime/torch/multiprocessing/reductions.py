"""The two functions, with the device where torch has it: argument 6 of 15. The counter of importers is number 11."""

import os
from pathlib import Path

import simulated
import torch

COUNTER = f"/torch_{os.getpid()}_{simulated.MEMORY.stat().st_ino}_0"  # as aten's NewProcessWideShmHandle names it


def reduce_tensor(tensor):
    handle = simulated.ipc_handle(tensor.device, tensor.values)
    Path("/dev/shm" + COUNTER).touch()
    before = (None, tensor.shape, (1,), 0, None, None)
    return rebuild_cuda_tensor, (*before, tensor.device, handle, 4096, 0, False, COUNTER.encode(), 0, None, False)


def rebuild_cuda_tensor(*arguments):
    assert len(arguments) == 15, "as torch's"
    device, handle = arguments[6:8]
    if device >= len(simulated.visible()):
        raise simulated.HipError("invalid device ordinal")
    return torch.Tensor(simulated.ipc_open(handle), arguments[1], device)
