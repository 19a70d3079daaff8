"""Many different manifests in one process: what each takes beyond the first, and whether memory grows."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, run

IMAGE, COUNTS, ROUNDS, ALLOWED_MS = "rocm7.14", (1, 10, 100), 5, 2
GROWTH, GROWTH_MIB = 1.25, 2  # of a hundred beside ten: the time of each, and the peak of memory
PROGRAM = """
import gc, json, pathlib, resource, sys, time
gc.set_threshold(10_000)  # as __main__ has it
from builder import facts, manifest, render
folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
read = written = 0.0
for number in range(count):
    began = time.perf_counter()
    found = manifest.load(folder / "images" / f"m{number}.yaml")
    base = facts.of(found, folder)
    loaded = time.perf_counter()
    render.render(found, base)
    if number or count == 1:
        read += loaded - began
        written += time.perf_counter() - loaded
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([1000 * read / max(1, count - 1), 1000 * written / max(1, count - 1), peak]))
"""


def main() -> None:
    found: dict[int, list[tuple[float, float, float]]] = {count: [] for count in COUNTS}
    with tempfile.TemporaryDirectory() as scratch:
        _write_manifests(Path(scratch) / "images")
        for number in range(ROUNDS):
            for count in COUNTS:
                found[count].append(tuple(json.loads(run([sys.executable, "-c", PROGRAM, scratch, str(count)]))))
            sys.stderr.write(f"round {number + 1} of {ROUNDS}\n")
    middle = {count: [statistics.median(column) for column in zip(*each, strict=True)] for count, each in found.items()}
    each = {count: read + written for count, (read, written, _) in middle.items()}
    _, ten, hundred = COUNTS
    tell(
        title="Many manifests in one process",
        how=f"Different manifests, each a copy of {IMAGE}'s with another summary, read with their shared file and the "
        f"facts of their base, and rendered; medians of {ROUNDS} processes, beyond the first manifest, which imports.",
        columns=["manifests", "each (ms)", "reading (ms)", "rendering (ms)", "peak memory (MiB)"],
        rows=[
            [count, round(each[count], 2), round(read, 2), round(written, 2), round(peak, 1)]
            for count, (read, written, peak) in middle.items()
        ],
        targets=[
            Target(what="each beyond the first", value=round(each[hundred], 2), allowed=ALLOWED_MS, unit="ms"),
            Target(
                what="each of 100 beside each of 10",
                value=round(each[hundred] / each[ten], 2),
                allowed=GROWTH,
                unit="x",
            ),
            Target(
                what="memory of 100 above that of 10",
                value=round(middle[hundred][2] - middle[ten][2], 1),
                allowed=GROWTH_MIB,
                unit="MiB",
            ),
        ],
        notes=["The row of one manifest is the first itself."],
    )


def _write_manifests(images: Path) -> None:
    """As many as are asked for at most, each with another summary and other needs."""
    shutil.copytree(ROOT / "images", images)
    text = (images / f"{IMAGE}.yaml").read_text("utf-8")
    for number in range(max(COUNTS)):
        other = text.replace("summary: ", f"summary: Number {number}. ", 1)
        (images / f"m{number}.yaml").write_text(other.replace("minutes: ", f"minutes: {number + 1}"), "utf-8")


if __name__ == "__main__":
    main()
