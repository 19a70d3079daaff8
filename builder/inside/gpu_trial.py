"""One trial on a GPU host, in a process of its own: import torch, do one thing, and print what came of it."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

MARK = "@trial "
DEVICE_ARGUMENT = 6  # of torch's rebuild_cuda_tensor; vLLM writes the engine's own device there
COUNTER_ARGUMENT = 11  # a file in /dev/shm, with the number of importers
ODD_BYTES = (2**30, 2**20 + 1, 4097)  # for the memory saver: beside pages, and beside its chunks
Row = dict[str, Any]


def hip_count() -> int:
    """The number of GPUs by HIP's own call, asked of the library that torch has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123 - no file on a disk
        loaded = [line.split(maxsplit=5)[5].strip() for line in maps if "libamdhip64.so" in line]
    number = ctypes.c_int(-1)
    code = ctypes.CDLL(loaded[0] if loaded else "libamdhip64.so").hipGetDeviceCount(ctypes.byref(number))
    return 0 if code else number.value  # hipErrorNoDevice comes as a code


def count(order: str) -> Row:
    """What torch and HIP count after some imports, in their order; the GPUs, and nothing is launched."""
    for module in order.split(","):
        importlib.import_module(module)
    import torch  # noqa: PLC0415 - the order is the trial

    found = torch.cuda.device_count()
    hip = hip_count() if torch.version.hip else None
    devices = []
    for ordinal in range(found if hip is None else min(found, hip)):
        about = torch.cuda.get_device_properties(ordinal)
        devices.append({"ordinal": ordinal, "name": about.name, "uuid": str(getattr(about, "uuid", "unknown")),
                        "target": about.gcnArchName.partition(":")[0], "bytes": about.total_memory})
    return {"torch": found, "hip": hip, "devices": devices,
            "version": torch.__version__, "rocm": torch.version.hip,
            "targets": [name.partition(":")[0] for name in torch.cuda.get_arch_list()] if devices else []}


def product(ordinal: str) -> Row:
    """Whether a matrix product comes out as on the CPU: of small whole numbers, so that it is exact everywhere."""
    import torch  # noqa: PLC0415

    left = (torch.arange(4096) % 7).reshape(64, 64).float()
    right = (torch.arange(4096) % 5).reshape(64, 64).float()
    place = f"cuda:{ordinal}"
    return {"equal": bool(torch.equal(left @ right, (left.to(place) @ right.to(place)).cpu()))}


def saver(ordinal: str) -> Row:
    """What a pause frees on a GPU and a resume brings back, of each size; two of them fit no page."""
    try:
        from torch_memory_saver import torch_memory_saver as memory  # noqa: PLC0415
    except ModuleNotFoundError as error:
        return {"absent": True} if error.name == "torch_memory_saver" else {"error": said(error)}
    import torch  # noqa: PLC0415

    def free() -> int:
        torch.cuda.synchronize(int(ordinal))
        return int(torch.cuda.mem_get_info(int(ordinal))[0])

    def paused(size: int) -> Row:
        with memory.region(tag=str(size), enable_cpu_backup=True):
            held = torch.full((size,), 7, dtype=torch.uint8, device=f"cuda:{ordinal}")
        KEPT.append(held)  # what another region may not be given
        full = free()
        memory.pause(str(size))
        freed = free()
        memory.resume(str(size))
        return {"asked": size, "freed": freed - full, "taken_again": freed - free(), "kept": bool((held == 7).all())}  # noqa: PLR2004 - what it was filled with

    memory.hook_mode = "torch"  # the other one wants LD_PRELOAD
    return {"sizes": [paused(size) for size in ODD_BYTES]}


def checksum(values: list[int]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def export(*ordinals: str) -> Row:
    """Of each GPU, a handle of 4 KiB that say which GPU they are on, as a trainer exports its weights."""
    import torch  # noqa: PLC0415
    from torch.multiprocessing.reductions import reduce_tensor  # noqa: PLC0415

    def handle(ordinal: int) -> Row:
        try:
            content = torch.arange(1024, dtype=torch.int32) * (ordinal + 3)
            tensor = content.to(f"cuda:{ordinal}")
            torch.cuda.synchronize(ordinal)
            KEPT.append(tensor)
            arguments = reduce_tensor(tensor)[1]
            counter = os.fsdecode(arguments[COUNTER_ARGUMENT])
        except Exception as error:  # noqa: BLE001 - one GPU's failure is an observation
            return {"error": said(error)}
        packed = base64.b64encode(pickle.dumps(arguments)).decode()
        return {"packed": packed, "checksum": checksum(content.tolist()), "counter": counter}

    return {"handles": [handle(int(ordinal)) for ordinal in ordinals]}


KEPT: list[Any] = []  # what is exported, or held back, lives as long as its process


def load() -> Row:
    """Open a handle on this process's first GPU, as vLLM's worker does, and read what it leads to."""
    from torch.multiprocessing.reductions import rebuild_cuda_tensor  # noqa: PLC0415

    handle = json.loads(sys.stdin.readline())
    arguments = list(pickle.loads(base64.b64decode(handle["packed"])))  # noqa: S301 - by our own exporter
    arguments[DEVICE_ARGUMENT] = 0
    return {"same": checksum(rebuild_cuda_tensor(*arguments).cpu().tolist()) == handle["checksum"]}


TRIALS: dict[str, Callable[..., Row]] = {"count": count, "product": product, "saver": saver, "export": export,
                                         "load": load}


def said(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


def attempt(name: str, words: list[str]) -> None:
    """A trial's own process: say what came of it, wait where others still read from it, and end at once."""
    try:
        found = TRIALS[name](*words)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what the trial came to
        found = {"error": said(error)}
    print("\n" + MARK + json.dumps(found), flush=True)
    if name == "export":
        sys.stdin.read()
    os._exit(0)  # what libraries do at the end of a process is no part of the trial


if __name__ == "__main__":
    # Beside this file, nothing is a module of the image.
    here = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - one import fewer in each process
    sys.path[:] = [place for place in sys.path if place not in ("", here)]
    attempt(sys.argv[1], sys.argv[2:])
