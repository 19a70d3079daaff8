"""How long the seal's check of 30,000 files takes, and the judge over a plan of 300 distributions, without pip.

Python's start is included; the median of five, and each.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "unit")]

import wheels  # noqa: E402 - where the tests keep it

from builder import lists, manifest  # noqa: E402

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

MANIFEST = manifest.load(Path(__file__).parents[1] / "images" / "rocm7.14.yaml")
FILES = 30_000
PLANNED = 300
RUNS = 5
JUDGE = """
import judge, pathlib, sys, tempfile
judge.pip_environment = lambda: ({}, [])
judge.Judge.dry_run = lambda *_, **__: (judge.read_plan(pathlib.Path(sys.argv[2])), "")
with tempfile.TemporaryDirectory() as scratch:
    found = judge.Judge(pathlib.Path(sys.argv[1]), "REQUIREMENTS_VIME", pathlib.Path(scratch))
    plan, _ = found.plan([(judge.Requirement(f"d{number}"), "a list") for number in range(0, 300, 10)])
assert len(plan) == 300, plan
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        many = {f"torch/include/{number % 100}/{number}.h": "" for number in range(FILES)}
        torch = replace(wheels.BASE[0], files={**wheels.BASE[0].files, **many})
        image = wheels.image(folder, wheels.pip_files(folder / "pip", "bundled"), [torch, *wheels.BASE[1:]])
        image.run("seal", "create", *wheels.SEALED).check_returncode()
        show(f"seal check of {FILES} files", [seconds(image.run, "seal", "check", "S") for _ in range(RUNS)])
        (image.root / "policy.json").write_text(lists.text(lists.policy(MANIFEST)), encoding="utf-8")
        report = folder / "report.json"
        report.write_text(json.dumps({"version": "1", "install": list(map(entry, range(PLANNED)))}), encoding="utf-8")
        words = ("-c", JUDGE, str(image.root), str(report))
        spent = [seconds(image.start, *words, PYTHONPATH=str(wheels.INSIDE)) for _ in range(RUNS)]
        show(f"judging a plan of {PLANNED}", spent)


def entry(number: int) -> dict[str, object]:
    """One distribution of pip's report, which asks for the next ten."""
    needs = [f"d{number + step}>=1.0" for step in range(1, 11) if number + step < PLANNED]
    archive = {"hashes": {"sha256": f"{number:064x}"}}
    return {
        "metadata": {"name": f"d{number}", "version": "1.5", "requires_dist": needs},
        "download_info": {"url": f"https://index.invalid/d{number}-1.5-py3-none-any.whl", "archive_info": archive},
        "is_direct": False,
    }


def seconds(run: Callable[..., subprocess.CompletedProcess[str]], *words: str, **environment: str) -> float:
    start = time.perf_counter()
    done = run(*words, **environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - start


def show(what: str, spent: list[float]) -> None:
    each = ", ".join(f"{taken:.2f}" for taken in spent)
    print(f"{what}: {statistics.median(spent):.2f} s (each: {each})")


if __name__ == "__main__":
    main()
