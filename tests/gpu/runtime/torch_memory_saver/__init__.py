from contextlib import contextmanager

import simulated

if simulated.HOST.get("no_memory_saver"):
    raise ModuleNotFoundError("No module named 'torch_memory_saver'", name="torch_memory_saver")

import torch
from torch import cuda


class Saver:
    hook_mode = "preload"

    @contextmanager
    def region(self, tag="default", enable_cpu_backup=False):
        self.backup = enable_cpu_backup
        yield

    def pause(self):
        cuda.paused = simulated.RULES["pause"] == "gives the memory back"

    def resume(self):
        cuda.paused = False
        if not self.backup or simulated.RULES["resume"] == "takes the memory":
            for each in torch.filled:
                each.value = 0


torch_memory_saver = Saver()
