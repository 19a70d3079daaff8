"""The two functions, with the device where torch has it: argument 6 of 15."""

import simulated
import torch


def reduce_tensor(tensor):
    handle = simulated.ipc_handle(tensor.device, tensor.values)
    before = (None, tensor.shape, (1,), 0, None, None)
    return rebuild_cuda_tensor, (*before, tensor.device, handle, 4096, 0, False, None, 0, None, False)


def rebuild_cuda_tensor(*arguments):
    assert len(arguments) == 15, "as torch's"
    device, handle = arguments[6:8]
    if device >= len(simulated.visible()):
        raise simulated.HipError("invalid device ordinal")
    return torch.Tensor(simulated.ipc_open(handle), arguments[1], device)
