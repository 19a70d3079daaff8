"""Change the guards in a copy of the project, one change at a time, and see whether their tests notice; write how many."""

from __future__ import annotations

import argparse
import ast
import hashlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from explained import EXPLAINED
from mutants import Mutant, mutants
from trying import Outcome, Trials

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guards.md"
HEADING = "\n## A rule removed or inverted"
UNEXPLAINED = "nobody has looked into it"
OUTCOMES = (Outcome.FAILED, Outcome.BROKEN, Outcome.HUNG)  # the columns
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
    "builder/inside/judge.py": ("tests/unit/test_judge.py", "tests/guards/test_installer.py"),
    "builder/inside/installer.py": ("tests/guards/test_installer.py",),
}
HEAD = """
## A rule removed or inverted

Written by `make mutants` on {date}. In a copy of the project each condition of a guard is inverted, each operand of one
left out, each line that refuses, records or returns removed, each entry of a table of rules removed, one at a time;
then the unit tests of that program run in which a changed line runs, until one fails. One that all of them pass has
survived; one with which no test could start, or a test did not end in five times its seconds, is no proof of a test, and
counted apart. A run goes on where the last one of the same text (its SHA-256 begins so) has ended, and asks again for
what survived without a reason. The tests in containers, the traps and `docs/faults.md` were not asked: they would
notice more. A program without a row was not tried as it is now. mutmut and
cosmic-ray were not run: the one puts a dispatcher of its own into a program, and ours are embedded in Dockerfiles as
they stand and run by other interpreters; the other starts pytest anew for each change, which takes longer than most of
these tests.

| program | text | changes | tried | a test failed | no test could start | did not end | survived, explained | survived otherwise |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
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


@dataclass
class Found:
    """What the changes of one text of a program have come to.

    Attributes:
        tried: how many of them, in their order.
        survived: the names of those that no test noticed.
    """

    digest: str
    tried: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    survived: set[str] = field(default_factory=set)

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        self.survived.discard(mutant.name)
        if outcome is Outcome.SURVIVED:
            self.survived.add(mutant.name)
        else:
            self.outcomes[outcome] += 1


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def earlier(program: str, text: str, every: Sequence[Mutant]) -> Found:
    """What the page says of this very text; nothing if it has another."""
    found = Found(digest(text))
    lines = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].splitlines()
    for line in lines:
        if line.startswith(f"| `{program}` | {found.digest} |"):
            found.tried, *counts = map(int, line.split(" | ")[3:-2])
            found.outcomes.update(dict(zip(OUTCOMES, counts, strict=True)))
    if found.tried:
        found.survived = {each.name for each in every if any(x.startswith(listed(program, each)) for x in lines)}
    return found


def listed(program: str, mutant: Mutant) -> str:
    return f"* `{program}`, {mutant.name}: "


def proceed(trials: Trials, found: Found, chosen: Sequence[Mutant], until: float) -> None:
    """Ask once more for what survived without a reason, then go on with what was not tried."""
    again = [each for each in chosen if each.name in found.survived and (trials.program, each.name) not in EXPLAINED]
    for mutant in [*again, *chosen[found.tried :]]:
        if time.monotonic() > until:
            break
        ast.parse(mutant.text)  # what is no program would be noticed by everybody
        found.tried += mutant not in again
        outcome = trials.tried(mutant)
        found.add(mutant, outcome)
        if outcome is not Outcome.FAILED:
            say(f"{outcome.value}: {trials.program}:{mutant.line}: {mutant.name}")
    trials.write(trials.text)


def written(rows: Mapping[str, str], lists: Mapping[str, Sequence[str]]) -> None:
    """The section at the end of the page on guards; what was found of another program stays as long as its text does."""
    page, _, old = PAGE.read_text(encoding="utf-8").partition(HEADING)
    kept: dict[str, list[str]] = {program: [] for program in GUARDED}
    for line in old.splitlines(keepends=True):
        program = line.split("`")[1] if line.startswith(("| `", "* `")) else ""
        row = f"| `{program}` | {digest((ROOT / program).read_text(encoding='utf-8'))} |" if program in kept else ""
        if program in kept and program not in rows and (kept[program] or line.startswith(row)):
            kept[program].append(line)
    table, survived = list[str](), list[str]()
    for program, lines in kept.items():
        table += [rows[program]] if program in rows else lines[:1]
        survived += lists[program] if program in rows else lines[1:]
    page += HEAD.format(date=time.strftime("%Y-%m-%d", time.gmtime())) + "".join(table)
    PAGE.write_text(page + "\nThose that survived:\n\n" + "".join(survived), encoding="utf-8")


def told(program: str, every: Sequence[Mutant], found: Found) -> tuple[str, list[str]]:
    """The row of a program, and its survivors."""
    why = {each: EXPLAINED.get((program, each.name)) for each in every if each.name in found.survived}
    known = sum(map(bool, why.values()))
    counts = [len(every), found.tried, *(found.outcomes[each] for each in OUTCOMES), known, len(why) - known]
    row = f"| `{program}` | {found.digest} | {' | '.join(map(str, counts))} |\n"
    return row, [f"{listed(program, each)}{reason or UNEXPLAINED}\n" for each, reason in why.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(GUARDED)}")
    parser.add_argument("--minutes", type=float, default=30.0, help="for each program; then the rest is left untried")
    parser.add_argument("--write", action="store_true", help="the section of docs/guards.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = copied(Path(folder) / "project")
        for program in given.programs or GUARDED:
            text = (root / program).read_text(encoding="utf-8")
            every = sorted(mutants(text), key=lambda each: each.line)
            chosen = random.Random(0).sample(every, len(every))  # noqa: S311 (the same order each time)
            found = earlier(program, text, every)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                trials = Trials(root, program, GUARDED[program], Path(scratch), text)
                trials.learn()
                proceed(trials, found, chosen, time.monotonic() + given.minutes * 60)
            row, survivors = told(program, every, found)
            say(row.strip())
            if given.write:
                written({program: row}, {program: survivors})


if __name__ == "__main__":
    main()
