"""What catches each fault, as this run has it and as docs/faults.md has it."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "faults.md"
# In the order in which they are met; a build's step stands behind its stage.
STAGES = ("check", "render", "preflight", "image", "rehearse", "verify")
HEAD = """# Faults, and the stage that catches each

Written by `make fault-table` on {date}. Each of {count} faults was planted in what works: in a copy of this project, in
the repositories of its sources (the stand-ins), or in a finished rehearsal. Before the stage that is named every
earlier one was run and had nothing to say; the name of the rule or check, and the message, are that stage's. The
message is its first line; places in a file are left out. The seconds are this run's, on a machine that did other
things too.

How many each stage caught: {counts}. The names:

* **check** refuses the manifest, the base's facts or a stale file; **render** refuses the text that a template makes
  (`check` renders too, so both come in the same second). **preflight** asks the repositories and an index.
* **image** stops before its first step: at a value that nobody knows, or at a base that is not what its facts say.
* **rehearse** is a build: the real one stops at the same step, by the same words. What a compile makes (a version,
  device code) is looked at by the checks, minutes after it: programs that stand before a compile are part of its
  cache key, and these change with the manifest.
* **verify** looks at a finished image. What is planted there was put into it after its build.

What is found later than one might wish, and why: what a base has only its container tells (its tools, unless its facts
name them; a program that may not be executed), which is the first seconds of a build; a prebuilt wheel and the build
tools are fetched by hash in the build, and asked of no index before.

How each trap for an installer is caught stands in [guards.md](guards.md), what goes wrong with engines in
[engines.md](engines.md).

| from | fault | caught by | what is said | seconds |
| --- | --- | --- | --- | --- |
"""
_ROW = re.compile(
    r"^\| (?P<case>\S+) \| (?P<title>.+?) \| (?P<stage>\w+)(?:: (?P<by>.+?))? \| (?P<said>.*) \| (?P<seconds>[\d.]+) \|$",
    re.MULTILINE,
)
# What is another one each time, or with each change of the file that it names.
_VARYING = (
    (r"\b[0-9a-f]{40}\b", "COMMIT"),
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r"fatal: .*not our ref", "fatal: not our ref"),
    (r"file://\S+/", "file:///"),
    (rf"{re.escape(str(ROOT))}/", ""),
    (r"/\S*/project/", ""),
    (r"(\.\w+):\d+(:\d+)?:", r"\1:"),
    (r"\(line \d+\)", "(line N)"),
    (r"line of \d+ bytes", "line of N bytes"),
    (r"\bvime-images\S*:\S+", "IMAGE"),
)


@dataclass(frozen=True)
class Row:
    """What caught a fault.

    Attributes:
        by: a rule, a probe, a step or a check; empty where the stage is all there is to say.
    """

    case: str
    stage: str
    by: str
    said: str
    seconds: float

    @property
    def verdict(self) -> tuple[str, str, str]:
        """What must not change unseen; the lines of our manifests do with every edit."""
        return self.stage, self.by, re.sub(r"(\bline |:)\d+", r"\1", self.said)


class Catches:
    """The rows, as they stand in the file and as this run makes them."""

    def __init__(self, *, update: bool) -> None:
        self.update = update
        self.made: dict[str, Row] = {}
        self.rows = read()

    def __call__(self, title: str, row: Row) -> None:
        """Record what has caught a fault.

        Raises:
            AssertionError: where the file says otherwise.
        """
        row = Row(row.case, row.stage, _cell(row.by), _cell(row.said), row.seconds)
        assert row.stage in STAGES
        assert title not in self.made
        self.made[title] = row
        if not self.update:
            assert title in self.rows, f"docs/faults.md lacks {title!r}: make fault-table"
            assert self.rows[title].verdict == row.verdict, "docs/faults.md is stale: make fault-table"

    def write(self) -> None:
        if self.update and self.made:
            PATH.write_text(page({**self.rows, **self.made}), encoding="utf-8")


def read() -> dict[str, Row]:
    """The rows of the file by their titles."""
    text = PATH.read_text(encoding="utf-8") if PATH.is_file() else ""
    return {
        found["title"]: Row(found["case"], found["stage"], found["by"] or "", found["said"], float(found["seconds"]))
        for found in _ROW.finditer(text)
        if found["title"] != "fault"
    }


def page(rows: Mapping[str, Row]) -> str:
    """The whole file."""
    count = Counter(row.stage for row in rows.values())
    counts = ", ".join(f"{stage} {count[stage]}" for stage in STAGES if count[stage])
    head = HEAD.format(date=dt.datetime.now(dt.timezone.utc).date(), count=len(rows), counts=counts)
    order = sorted(rows.items(), key=lambda item: (STAGES.index(item[1].stage), item[0].lower()))
    lines = [
        f"| {row.case} | {title} | {row.stage}{f': {row.by}' if row.by else ''} | {row.said} | {row.seconds:.2f} |\n"
        for title, row in order
    ]
    return head + "".join(lines)


def _cell(text: str) -> str:
    line = (text.strip().splitlines() or [""])[0]
    for pattern, name in _VARYING:
        line = re.sub(pattern, name, line)
    return line.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("*", "\\*").strip()
