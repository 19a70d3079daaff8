"""How long the seal's check of 30,000 files takes, and the judge over a plan of 300 distributions, without pip."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, in_turn, medians

sys.path.insert(0, str(ROOT / "tests" / "unit"))

import wheels

from builder import lists, manifest

FILES, PLANNED, ROUNDS, ALLOWED_SEAL_S, ALLOWED_JUDGE_S = 30_000, 300, 5, 0.5, 0.2
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
    written = manifest.load(ROOT / "images" / "rocm7.14.yaml")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        many = {f"torch/include/{number % 100}/{number}.h": "" for number in range(FILES)}
        torch = replace(wheels.BASE[0], files={**wheels.BASE[0].files, **many})
        image = wheels.image(folder, wheels.pip_files(folder / "pip", "newest"), [torch, *wheels.BASE[1:]])
        image.run("seal", "create", *wheels.SEALED).check_returncode()
        image.write("policy.json", lists.policy(written))
        image.write("sets/REQUIREMENTS_VIME.json", lists.requirement_set(written.sources["vime"]))
        report = image.write("report.json", {"version": "1", "install": list(map(entry, range(PLANNED)))})
        words, place = ("-c", JUDGE, str(image.root), str(report)), str(wheels.INSIDE)
        actions = {
            "seal": lambda: image.run("seal", "check", "S").check_returncode(),
            "judge": lambda: image.start(*words, PYTHONPATH=place).check_returncode(),
        }
        spent = medians(in_turn(actions, ROUNDS))
    named = {"seal": f"the seal's check of {FILES} files", "judge": f"judging a plan of {PLANNED} distributions"}
    tell(
        title="The seal and the judge by themselves",
        how=f"Python's start is included, pip's work is not; median of {ROUNDS}.",
        columns=["what", "median (s)"],
        rows=[[what, round(spent[name], 2)] for name, what in named.items()],
        targets=[
            Target(what=named["seal"], value=round(spent["seal"], 2), allowed=ALLOWED_SEAL_S, unit="s"),
            Target(what=named["judge"], value=round(spent["judge"], 2), allowed=ALLOWED_JUDGE_S, unit="s"),
        ],
        notes=["The judge reads requirements with the parser that pip brings, and has to import that first."],
    )


def entry(number: int) -> dict[str, object]:
    """One distribution of pip's report, which asks for the next ten."""
    needs = [f"d{number + step}>=1.0" for step in range(1, 11) if number + step < PLANNED]
    archive = {"hashes": {"sha256": f"{number:064x}"}}
    return {
        "metadata": {"name": f"d{number}", "version": "1.5", "requires_dist": needs},
        "download_info": {"url": f"https://index.invalid/d{number}-1.5-py3-none-any.whl", "archive_info": archive},
        "is_direct": False,
    }


if __name__ == "__main__":
    main()
