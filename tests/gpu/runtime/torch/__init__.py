"""As much of torch as the probe uses, over simulated GPUs. Tensors are lists, or one value many times."""

import math

import simulated

if simulated.HOST.get("no_torch"):
    raise ModuleNotFoundError("No module named 'torch'", name="torch")

if simulated.HOST.get("torch") == "crashes":
    simulated.os.abort()
if simulated.HOST.get("torch") == "hangs":
    simulated.hang()
if simulated.HOST.get("torch") == "is broken":
    raise ImportError("libMIOpen.so.1: cannot open shared object file")

from torch import version
from torch.version import __version__

simulated.order.append("torch")
int32, uint8 = "int32", "uint8"


class Tensor:
    def __init__(self, values, shape=None, device=None):
        self.values, self.shape, self.device = values, shape or (len(values),), device

    def __mul__(self, number):
        return Tensor([value * number for value in self.values], self.shape)

    def __mod__(self, number):
        return Tensor([value % number for value in self.values], self.shape)

    def __matmul__(self, other):
        (rows, inner), (_, columns) = self.shape, other.shape
        if self.device is not None:
            gpu = simulated.visible()[self.device]
            simulated.log(f"launch {gpu}")
            if simulated.faulty(gpu) == "launch fails":
                raise simulated.HipError("invalid device function")
            if simulated.faulty(gpu) == "launch crashes":
                simulated.os.abort()
            if simulated.faulty(gpu) == "launch hangs":
                simulated.hang()
            wrong = simulated.faulty(gpu) == "wrong product" or simulated.RULES["product_on_a_gpu"] != "as on the CPU"
            if wrong:
                return Tensor([0.0] * (rows * columns), (rows, columns), self.device)
        down = [other.values[at::columns] for at in range(columns)]
        across = [self.values[at * inner:(at + 1) * inner] for at in range(rows)]
        return Tensor([sum(map(math.prod, zip(a, b))) for a in across for b in down], (rows, columns), self.device)

    def reshape(self, *shape):
        return Tensor(self.values, shape, self.device)

    def float(self):
        return Tensor([float(value) for value in self.values], self.shape, self.device)

    def to(self, device):
        ordinal = int(device.partition(":")[2])
        if ordinal >= len(simulated.visible()):
            raise simulated.HipError("invalid device ordinal")
        return Tensor(self.values, self.shape, ordinal)

    def cpu(self):
        return Tensor(self.values, self.shape)

    def tolist(self):
        return list(self.values)


class Filled:
    """Many bytes of one value, which a memory saver may hold."""

    tag, paused = None, False

    def __init__(self, size, value, ordinal):
        self.size, self.value, self.ordinal = size, value, ordinal

    def __eq__(self, value):
        return Filled(self.size, self.value == value, self.ordinal)

    __hash__ = None

    def all(self):
        return self.value


filled = []


def full(size, value, dtype, device):
    made = Filled(size[0], value, int(device.partition(":")[2]))
    simulated.log(f"fill {simulated.visible()[made.ordinal]}")
    filled.append(made)
    return made


def arange(number, dtype=None):
    return Tensor(list(range(number)))


def equal(one, other):
    return one.values == other.values


from torch import cuda  # noqa: E402
