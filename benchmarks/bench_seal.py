"""How long the seal's check takes on 30,000 files, Python's start included: the median of five, and each."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "unit")]

import wheels  # noqa: E402 - where the tests keep it

FILES = 30_000
RUNS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        many = {f"torch/include/{number % 100}/{number}.h": "" for number in range(FILES)}
        torch = replace(wheels.BASE[0], files={**wheels.BASE[0].files, **many})
        image = wheels.image(folder, wheels.pip_files(folder / "pip", "bundled"), [torch, *wheels.BASE[1:]])
        image.run("seal", "create", *wheels.SEALED).check_returncode()
        spent = []
        for _ in range(RUNS):
            start = time.perf_counter()
            image.run("seal", "check", "S").check_returncode()
            spent.append(time.perf_counter() - start)
    each = ", ".join(f"{seconds:.2f}" for seconds in spent)
    sys.stdout.write(f"seal check of {FILES} files: {statistics.median(spent):.2f} s (each: {each})\n")


if __name__ == "__main__":
    main()
