import os
from contextlib import contextmanager

import simulated

if simulated.HOST.get("no_memory_saver"):
    raise ModuleNotFoundError("No module named 'torch_memory_saver'", name="torch_memory_saver")

import torch

KEEPS = 2 * 2**20 if simulated.HOST.get("saver") == "frees large ones" else 0  # what it does not free


class Saver:
    hook_mode = "preload"

    @contextmanager
    def region(self, tag="default", enable_cpu_backup=False):
        self.backup, before = enable_cpu_backup, len(torch.filled)
        yield
        for each in torch.filled[before:]:
            each.tag = tag

    def pause(self, tag=None):
        if simulated.HOST.get("saver") == "crashes":
            os.abort()
        if simulated.RULES["pause"] == "gives the memory back":
            for each in torch.filled:
                if tag in (None, each.tag):
                    each.paused = each.size > KEEPS

    def resume(self, tag=None):
        for each in torch.filled:
            if tag in (None, each.tag):
                each.paused = simulated.HOST.get("saver") == "takes nothing again"
                if not self.backup or simulated.RULES["resume"] == "takes the memory":
                    each.value = 0


torch_memory_saver = Saver()
