"""Give the readers 100,000 hostile inputs, and write docs/hostile-input.md: what became of them, how long, how much.

Each kind of input runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import platform
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import inputs

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs/hostile-input.md"
INPUTS = {
    "bytes to the loader": 10_000,
    "words to the loader": 10_000,
    "values to the loader": 20_000,
    "damaged manifests": 20_000,
    "damaged facts": 10_000,
    "events to the trace decoder": 30_000,
}
HANGS_S = 30  # one input that takes longer ends the run
WARM = 500  # inputs, after which memory is measured for the first time


@dataclass
class Row:
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, 0)
    grown_mb: float = 0.0


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(kind: str) -> Row:
    row, began, warm_mb = Row(), time.monotonic(), 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(INPUTS[kind]):
            signal.alarm(HANGS_S)  # unhandled, it ends the process
            started = time.monotonic()
            for _, outcome in inputs.outcomes(kind, range(number, number + 1), Path(scratch)):
                row.outcomes[outcome] += 1
            row.slowest = max(row.slowest, (time.monotonic() - started, number))
            if number == WARM:
                warm_mb = peak_mb()
    row.seconds, row.grown_mb = time.monotonic() - began, peak_mb() - warm_mb
    return row


def document(rows: dict[str, Row]) -> str:
    total = sum(row.outcomes.total() for row in rows.values())
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("pyyaml", "pydantic", "protobuf"))
    lines = [
        "# Hostile input",
        "",
        "Made by `make fuzz`; do not edit. `make test` gives the same readers the first hundreds of the same inputs.",
        "",
        (
            f"{total:,} inputs on {dt.datetime.now(dt.timezone.utc):%Y-%m-%d}, Python {platform.python_version()}, "
            f"{versions}: each was read, or refused in words with a place; none made a traceback, none took "
            f"{HANGS_S} s, and no refusal or progress line held a character that steers a terminal."
        ),
        "",
        "An input is made from its kind and its number alone (`tests/hostile/inputs.py`), so each can be made again. A",
        "manifest that is read is rendered too, and its Dockerfile may have no step but those of its sources. Memory is",
        f"what the process has grown by at its peak since input {WARM}.",
        "",
        "| input | read | refused | seconds | slowest | memory |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind, row in rows.items():
        slowest = f"{row.slowest[0] * 1000:.0f} ms, input {row.slowest[1]}"
        read, refused = row.outcomes["read"], row.outcomes["refused"]
        lines.append(f"| {kind} | {read:,} | {refused:,} | {row.seconds:.0f} | {slowest} | {row.grown_mb:.1f} MB |")
    return "\n".join(lines) + "\n"


def main() -> None:
    rows = {}
    for kind in INPUTS:
        print(kind, file=sys.stderr)  # noqa: T201 (a program of its own)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows[kind] = pool.apply_async(run, (kind,)).get(timeout=3600)
    PATH.write_text(document(rows), "utf-8")


if __name__ == "__main__":
    main()
