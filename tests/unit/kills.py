"""Kill a command at random moments, and see what it leaves: one way for all that write; docs/kills.md is made of it."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from manifests import ROOT

from builder.files import UNFINISHED

KILLS = int(os.environ.get("KILLS", "2"))
ALL = 20  # kills of each command, in `make kills`
PATH = ROOT / "docs/kills.md"
HEAD = """\
# Killed commands

Made by `make kills` on {date}, Python {python}; do not edit. `make test` kills each command twice.

Each was killed by SIGKILL at random moments of its time, more of them towards its end, where it writes: every second
time with all that it had started, else alone, so that its git, uv or build lived on. After each kill every file that
it writes was the old one or the new one, and whole; where it has to do with an engine, nothing of it was left there
once the next command had started; and the same command, run again, came to what it comes to when nobody kills it. A
push also has a note of the name that it gives the image: whole, and there only while it is at it.

Files are read before the first, between, or after the last was replaced; {unfinished} counts those beside them that
were not finished. They are in nobody's way, and git ignores them. Of a command that leaves no file in the end, all is
before.

| command | kills | before | between | after | {unfinished} |
| --- | --- | --- | --- | --- | --- |
"""


def same(_: str, content: bytes) -> object:
    """A file that is the same each time."""
    return content


def timed(path: str, content: bytes) -> object:
    """A file with times in it, without them; half of one cannot be read."""
    if path.endswith(".json"):
        text = re.sub(r'"(seconds|began)": [\d.e-]+', r'"\1": 0', json.dumps(json.loads(content)))
        return re.sub(r"\d+(\.\d+)? s\b|\d{4}-\d\d-\d\d \d\d:\d\d UTC", "0", text)
    assert content.endswith((b"</html>\n", b"</html>")) or not path.endswith(".html"), path
    return path


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that is to be killed.

    Attributes:
        folders: what it writes into, from the root of its project.
        anew: folders that each run begins without.
        code: its exit code when nobody kills it.
        once: whether it refuses to do again what is done.
        read: what of a file, by its path, is the same each time.
        left: what is left of it elsewhere once another command has started; the same after every good run.
    """

    words: tuple[str, ...]
    root: Path
    folders: tuple[str, ...]
    anew: tuple[str, ...] = ()
    code: int = 0
    once: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[str, bytes], object] = same
    left: Callable[[], object] = lambda: None

    def start(self, said: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "builder", *self.words],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root), **self.environment},
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def good(self) -> float:
        """Run it to its end; the seconds that it took."""
        began = time.monotonic()
        with self.start(subprocess.PIPE) as process:
            said, _ = process.communicate()
        assert (process.returncode, "Traceback" in said) == (self.code, False), said
        return time.monotonic() - began

    def kill(self, after: float, *, alone: bool) -> None:
        """Kill it so many seconds after its start, unless it has ended."""
        with self.start(subprocess.DEVNULL) as process:
            try:
                process.wait(timeout=after)
            except subprocess.TimeoutExpired:
                (os.kill if alone else os.killpg)(process.pid, signal.SIGKILL)

    def files(self) -> dict[str, bytes]:
        paths = [path for folder in self.folders for path in (self.root / folder).rglob("*") if path.is_file()]
        locks = {path for path in paths if path.name == "lock"}  # who is at it; nobody reads what the dead say there
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths if path not in locks}

    def begin(self, before: Mapping[str, bytes]) -> None:
        """Have everything as it was before the first run."""
        for path in self.files().keys() - before.keys():
            (self.root / path).unlink()
        for path, content in before.items():
            (self.root / path).write_bytes(content)
        for folder in self.anew:
            shutil.rmtree(self.root / folder, ignore_errors=True)

    def seen(self, files: Mapping[str, bytes]) -> dict[str, object]:
        finished = {path: content for path, content in files.items() if not path.endswith(UNFINISHED)}
        return {path: self.read(path, content) for path, content in finished.items()}


@dataclass
class Row:
    """What kills of a command came to."""

    kills: int = 0
    found: Counter[str] = field(default_factory=Counter)
    unfinished: int = 0


@dataclass
class Kills:
    """What this run has killed, by command."""

    rows: dict[str, Row] = field(default_factory=dict)

    def __call__(self, name: str, command: Command) -> None:
        """Kill a command, and assert after each kill that nothing is half, nothing left, and the next run good."""
        row = self.rows[name] = Row()
        before = command.files()
        took = command.good()
        old, new, left = command.seen(before), command.seen(command.files()), command.left()
        moments = random.Random(name)  # noqa: S311 (the same moments each time)
        for number in range(KILLS):
            command.begin(before)
            command.kill(took * moments.triangular(0, 1.1, 0.9), alone=bool(number % 2))
            files = command.files()
            found = command.seen(files)
            row.kills += 1
            row.unfinished += sum(path.endswith(UNFINISHED) for path in files)
            row.found["before" if found == old else "after" if found == new else "between"] += 1
            for path in {*old, *new, *found}:
                assert found.get(path) in (old.get(path), new.get(path)), path
            command.left()
            if command.once:
                command.begin(before)
            command.good()
            assert command.seen(command.files()) == new
            assert command.left() == left

    def write(self) -> None:
        """Write docs/kills.md, if everything was killed as often as it says."""
        head = HEAD.format(
            date=f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}",
            python=platform.python_version(),
            unfinished="unfinished",
        )
        moments = ("before", "between", "after")
        rows = [
            f"| {name} | {row.kills} | {' | '.join(str(row.found[when]) for when in moments)} | {row.unfinished} |\n"
            for name, row in self.rows.items()
        ]
        PATH.write_text(head + "".join(rows), "utf-8")
