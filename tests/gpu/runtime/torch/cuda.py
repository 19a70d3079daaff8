from types import SimpleNamespace

import simulated
import torch


def device_count():
    return simulated.counted()


def get_device_properties(ordinal):
    gpu = simulated.visible()[ordinal]
    target = simulated.HOST.get("targets", {}).get(str(gpu), simulated.HOST["target"])
    return SimpleNamespace(name="Simulated", uuid=f"{gpu:032x}", gcnArchName=f"{target}:sramecc+:xnack-",
                           total_memory=simulated.TOTAL)


def get_arch_list():
    return simulated.HOST.get("arch_list") or [simulated.HOST["target"]]


def synchronize(device=None):
    pass


def mem_get_info(device):
    held = sum(each.size for each in torch.filled if each.ordinal == device and not each.paused)
    return simulated.TOTAL - held, simulated.TOTAL
