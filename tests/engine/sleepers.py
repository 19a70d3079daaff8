"""The processes of a step that sleeps, seen from the machine that the engine runs on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def sleepers(marker: str) -> list[Path]:
    """The processes of this machine that sleep for exactly `marker` seconds; an engine elsewhere shows none."""
    wanted = f"sleep\0{marker}\0".encode()
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if read(path) == wanted]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


def within(seconds: float, claim: Callable[[], object]) -> bool:
    """Whether a claim comes true in so much time."""
    deadline = time.monotonic() + seconds
    while not (true := bool(claim())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return true
