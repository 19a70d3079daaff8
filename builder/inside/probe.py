"""Observe what this host's GPUs do for an image, each trial in a process of its own. It judges nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SCHEMA = 1
LIMIT_S = 60.0  # of a trial: torch alone takes seconds to import
COLD = 3  # times as long: what the first processes import is in no cache yet
AT_ONCE = 16
MARK = "@trial "  # what the line of a trial's result begins with
TRIAL = Path(__file__).resolve().with_name("gpu_trial.py")
# The five of ROCm's documentation, "GPU isolation techniques".
MASKS = ("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES",
         "OMP_DEFAULT_DEVICE")
ENGINE_MASKS = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")  # what vime sets for an engine, both alike
LEGACY, UNSET = "HSA_ENABLE_IPC_MODE_LEGACY", "unset"
Row = dict[str, Any]


def start(name: str, *words: str, mask: str | None = None, legacy: str | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.update(dict.fromkeys(ENGINE_MASKS, mask) if mask is not None else {})
    environment.update({LEGACY: legacy} if legacy not in (None, UNSET) else {})
    if legacy == UNSET:
        environment.pop(LEGACY, None)
    return subprocess.Popen([sys.executable, str(TRIAL), name, *words], text=True,
                            errors="replace", env=environment, start_new_session=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def end(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def found_in(output: str, code: int | None) -> Row:
    """What a trial said, or how it ended without a word."""
    lines = [line for line in output.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(MARK):
            return dict(json.loads(line[len(MARK):]))
    how = f"ended by signal {-code}" if code and code < 0 else f"exit code {code}"
    return {"error": f"{how}, {lines[-1] if lines else 'no message'}"}


def run(name: str, *words: str, given: str = "", limit: float | None = None, **settings: str | None) -> Row:
    limit = limit or LIMIT_S
    child = start(name, *words, **settings)
    try:
        output, _ = child.communicate(given, timeout=limit)
    except subprocess.TimeoutExpired:
        end(child)
        child.communicate()
        return {"error": f"did not end within {limit:g} s"}
    end(child)  # what it may have started
    return found_in(output, child.returncode)


@contextlib.contextmanager
def trainer(ordinals: list[int], **settings: str | None) -> Iterator[Callable[[], list[Row]]]:
    """A process that holds a tensor on each of its GPUs while the block lasts; what to call for their handles."""
    child = start("export", *map(str, ordinals), **settings)
    counters: set[str] = set()
    watch = threading.Timer(LIMIT_S, end, [child])
    watch.start()

    def handles() -> list[Row]:
        output = ""
        for line in child.stdout or ():
            output += line
            if line.startswith(MARK):
                break
        late = not watch.is_alive()
        watch.cancel()
        found = found_in(output, None if MARK in output else child.wait())
        counters.update(each["counter"] for each in found.get("handles", ()) if "counter" in each)
        why = f"did not end within {LIMIT_S:g} s" if late else found.get("error", "")
        return list(found.get("handles") or [{"error": why}] * len(ordinals))

    try:
        yield handles
    finally:
        watch.cancel()
        end(child)
        child.communicate()
        for name in counters:  # which torch removes only at the end of a process that is not killed
            Path("/dev/shm", name.lstrip("/")).unlink(missing_ok=True)  # noqa: S108 - it lies there


def visible(number: int) -> list[int]:
    """Our GPUs by their numbers, as an engine's mask has to name them; none where our own mask has UUIDs.

    HIP reads the first mask that is not blank, up to a word that names no GPU; torch counts none where one is repeated.
    """
    mask = next(filter(None, map(os.environ.get, ENGINE_MASKS)), "")
    words = mask.split(",")[:number]
    if len(words) < number or not mask:
        return list(range(number))
    return [int(word) for word in words] if all(word.isdecimal() for word in words) else []


def ipc(node: list[int]) -> list[Row]:
    """Every GPU's tensor opened under every mask, and both ways of ROCm's IPC."""
    own = os.environ.get(LEGACY, UNSET)  # what that means, differs between releases of ROCm
    with ThreadPoolExecutor(AT_ONCE) as pool, contextlib.ExitStack() as stack:
        trainers, waiting = [], []
        for legacy in dict.fromkeys((own, "0", "1")):
            for seen, kinds in ((node, ("narrow", "reordered")), (node[1:], ("offset",))):
                ordinals = list(range(len(seen))) if seen == node else [len(seen) - 1]
                mask = join(seen) if seen != node else None
                handles = stack.enter_context(trainer(ordinals, mask=mask, legacy=legacy))
                trainers.append((seen, kinds, ordinals, legacy, handles))
        for seen, kinds, ordinals, legacy, handles in trainers:
            for ordinal, handle in zip(ordinals, handles(), strict=True):
                for kind in kinds:
                    gpu = seen[ordinal]
                    mask = join([gpu] if kind == "narrow" else [gpu, *(each for each in seen if each != gpu)])
                    row = {"gpu": gpu, "mask": kind, "trainer": join(seen), "ordinal": ordinal, "engine": mask,
                           "legacy": legacy, "own": legacy == own}
                    waiting.append((row, pool.submit(opened, handle, mask, legacy)))
        return [{**row, **trial.result()} for row, trial in waiting]


def opened(handle: Row, mask: str, legacy: str) -> Row:
    if "error" in handle:
        return {"result": "not exported", "detail": handle["error"]}
    found = run("load", given=json.dumps(handle) + "\n", mask=mask, legacy=legacy)
    if "error" in found:
        return {"result": "error", "detail": found["error"]}
    return {"result": "same bytes" if found["same"] else "other bytes", "detail": ""}


def join(ordinals: list[int]) -> str:
    return ",".join(map(str, ordinals))


def node(path: Path) -> Row:
    """A device node, and whether this process may open it."""
    try:
        about = path.stat()
    except OSError as error:
        return {"path": str(path), "problem": error.strerror}
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        problem = None
    except OSError as error:
        problem = error.strerror
    return {"path": str(path), "gid": about.st_gid, "mode": oct(about.st_mode & 0o777), "problem": problem}


def namespaces() -> Row:
    shared = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 - its size is the question
    return {**{kind: str(Path("/proc/self/ns", kind).readlink()) for kind in ("ipc", "pid")},
            "shm_bytes": shared.f_blocks * shared.f_frsize if shared else 0}


def observe(devices: Path, targets: list[str], *, only_ipc: bool) -> Iterator[tuple[str, Any]]:
    """What there is to see, in an order in which nothing is launched before it is known to be possible."""
    nodes = [node(devices / "kfd"), *map(node, sorted((devices / "dri").glob("renderD*")))]
    yield "nodes", nodes
    yield "groups", sorted({os.getegid(), *os.getgroups()})
    yield "masks", {name: os.environ.get(name) for name in MASKS}
    yield "legacy", os.environ.get(LEGACY)
    yield "namespaces", namespaces()
    if len(nodes) == 1 or any(each["problem"] for each in nodes):
        return
    orders = ["torch"] if only_ipc else ["torch", "amdsmi,torch", "torch,amdsmi"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        counted = pool.map(lambda order: run("count", order, limit=COLD * LIMIT_S), orders)
        counts = dict(zip(orders, counted, strict=True))
        yield "counts", counts
        gpus = counts["torch"].get("devices", [])
        if not gpus or not counts["torch"]["rocm"]:
            return
        numbers = visible(len(gpus))
        if not only_ipc:
            known = targets or counts["torch"]["targets"]
            able = [gpu["ordinal"] for gpu in gpus if gpu["target"] in known]
            asked: list[tuple[int, str | None]] = [(ordinal, None) for ordinal in able]
            if able and len(numbers) > 1:  # once more, alone: as device 0 of a mask that does not start at 0
                asked.append((0, str(numbers[able[-1]])))
            trials = list(pool.map(lambda each: run("product", str(each[0]), mask=each[1]), asked))
            yield "products", [{"ordinal": ordinal, "engine": mask, **trial}
                               for (ordinal, mask), trial in zip(asked, trials, strict=True)]
            if able:
                yield "memory_saver", {"ordinal": able[0], **run("saver", str(able[0]))}
    if len(numbers) > 1:
        yield "ipc", ipc(numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=Path, default=Path("/dev"))
    parser.add_argument("--targets", default="", help="the GPU targets of the image, with semicolons between them")
    parser.add_argument("--only-ipc", action="store_true")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for each trial")
    parser.add_argument("--nonce", default="", help="what the result's line begins with")
    options = parser.parse_args()
    globals()["LIMIT_S"] = options.limit
    began = time.monotonic()
    seen: Row = {"schema": SCHEMA, "seconds": {}}
    for name, found in observe(options.devices, [each for each in options.targets.split(";") if each],
                               only_ipc=options.only_ipc):
        seen[name] = found
        seen["seconds"][name] = round(time.monotonic() - began, 1)
        began = time.monotonic()
    print(options.nonce + json.dumps(seen))


if __name__ == "__main__":
    main()
