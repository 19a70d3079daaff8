"""Change the guards in a copy of the project, one change at a time, and see whether their tests notice; write how many."""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from explained import EXPLAINED
from mutants import Mutant, mutants
from trying import Trials

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guards.md"
HEADING = "\n## A rule removed or inverted"
UNEXPLAINED = "nobody has looked into it"
# What has to hold: a program, and the tests that belong to it.
GUARDED = {
    "builder/rules.py": ("tests/unit/test_dockerfile.py", "tests/unit/test_render.py"),
    "builder/consistency.py": ("tests/unit/test_consistency.py", "tests/unit/test_manifest.py"),
    "builder/dockerfile.py": ("tests/unit/test_dockerfile.py",),
    "builder/toolchain.py": ("tests/unit/test_toolchain.py",),
    "builder/claims.py": ("tests/unit/test_claims.py",),
    "builder/inside/seal.py": ("tests/unit/test_seal.py",),
    "builder/inside/check.py": ("tests/unit/test_check.py",),
    "builder/inside/kinds.py": ("tests/unit/test_check.py",),
    "builder/inside/checked.py": ("tests/unit/test_check.py",),
    "builder/inside/imports.py": ("tests/unit/test_imports.py",),
    "builder/inside/probe.py": ("tests/unit/test_probe.py",),
    "builder/inside/device.py": ("tests/unit/test_device.py",),
    "builder/inside/source.py": ("tests/unit/test_source.py",),
    "builder/inside/judge.py": ("tests/unit/test_judge.py",),
    "builder/inside/installer.py": ("tests/guards/test_installer.py",),
}
HEAD = """
## A rule removed or inverted

Written by `make mutants` on {date}. In a copy of the project each condition of a guard is inverted, each operand of one
left out, each line that refuses, records or returns removed, each entry of a table of rules removed, one at a time;
then the unit tests of that program run in which the changed function runs. One that all of them pass has survived. The tests in containers, the traps and
`docs/faults.md` were not asked: they would notice more. A program without a row was not tried yet. mutmut and
cosmic-ray were not run: the one puts a dispatcher of its own into a program, and ours are embedded in Dockerfiles as
they stand and run by other interpreters; the other starts pytest anew for each change, which takes longer than most of
these tests.

| program | changes | tried | noticed | survived, explained | survived otherwise |
| --- | --- | --- | --- | --- | --- |
"""


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def copied(folder: Path) -> Path:
    """The project's files as they are now, committed or not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (ROOT / ".cache").mkdir(exist_ok=True)
    (folder / ".cache").symlink_to(ROOT / ".cache")
    return folder


def survivors(trials: Trials, text: str, chosen: Sequence[Mutant], until: float) -> tuple[int, list[Mutant]]:
    """How many were tried, and those that no test noticed."""
    trials.learn(text)
    tried, found = 0, list[Mutant]()
    for mutant in chosen:
        if time.monotonic() > until:
            break
        ast.parse(mutant.text)  # what is no program would be noticed by everybody
        tried += 1
        if not trials.notices(mutant):
            found.append(mutant)
            say(f"survived: {trials.program}:{mutant.line}: {mutant.name}")
    trials.write(text)
    return tried, found


def written(rows: Mapping[str, str], lists: Mapping[str, Sequence[str]]) -> None:
    """The section at the end of the page on guards; a program that was not asked for keeps what was found of it."""
    page, _, old = PAGE.read_text(encoding="utf-8").partition(HEADING)
    kept: dict[str, list[str]] = {program: [] for program in GUARDED}
    for line in old.splitlines(keepends=True):
        program = line.split("`")[1] if line.startswith(("| `", "* `")) else ""
        if program in kept and program not in rows:
            kept[program].append(line)
    table, survived = list[str](), list[str]()
    for program, lines in kept.items():
        table += [rows[program]] if program in rows else lines[:1]
        survived += lists[program] if program in rows else lines[1:]
    page += HEAD.format(date=time.strftime("%Y-%m-%d", time.gmtime())) + "".join(table)
    PAGE.write_text(page + "\nThose that survived:\n\n" + "".join(survived), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(GUARDED)}")
    parser.add_argument("--minutes", type=float, default=30.0, help="for each program; then the rest is left untried")
    parser.add_argument("--write", action="store_true", help="the section of docs/guards.md")
    given = parser.parse_args()
    rows, lists = dict[str, str](), dict[str, list[str]]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = copied(Path(folder) / "project")
        for program in given.programs or GUARDED:
            text = (root / program).read_text(encoding="utf-8")
            every = mutants(text)
            chosen = random.Random(0).sample(every, len(every))  # noqa: S311 (the same order each time)
            scratch = Path(folder) / f"scratch-{len(rows)}"
            scratch.mkdir()
            trials = Trials(root, program, GUARDED[program], scratch)
            tried, found = survivors(trials, text, chosen, time.monotonic() + given.minutes * 60)
            why = {
                mutant: EXPLAINED.get((program, mutant.name)) for mutant in sorted(found, key=lambda each: each.line)
            }
            known = sum(map(bool, why.values()))
            counts = (len(every), tried, tried - len(found), known, len(found) - known)
            rows[program] = f"| `{program}` | {' | '.join(map(str, counts))} |\n"
            lists[program] = [f"* `{program}`, {each.name}: {reason or UNEXPLAINED}\n" for each, reason in why.items()]
            say(rows[program].strip())
            if given.write:
                written(rows, lists)


if __name__ == "__main__":
    main()
