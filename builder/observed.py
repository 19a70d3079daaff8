"""What the probe saw of a GPU host, and what that was judged to be: one value, as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from builder.report import Check

Seen = dict[str, Any]  # what builder/inside/probe.py prints
Row = dict[str, Any]

SETTINGS = ("host", "private")  # of the container's IPC namespace
GOOD = "same bytes"
# As short as this, the table of 16 GPUs in three ways of IPC is no wider than a terminal of 80 columns.
CELLS = {GOOD: "ok", "other bytes": "OTHER", "error": "error", "not exported": "export"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What the probe saw, and what that means."""

    seen: Mapping[str, Seen]  # by the IPC namespace of its container
    targets: tuple[str, ...]  # of the image
    checks: tuple[Check, ...]
    rows: tuple[Row, ...]  # one an import: of which GPU, under which mask, in which setting, with which result
    sentence: str

    @property
    def table(self) -> str:
        """GPU and mask down, settings across; empty where no import was tried."""
        return "\n".join(_table(self.rows))

    def json(self) -> str:
        """All of it, for whoever was not there."""
        checks = [
            {"name": check.name, "outcome": check.outcome, "detail": check.detail, "notes": check.notes}
            for check in self.checks
        ]
        found = {"schema": 1, "sentence": self.sentence, "targets": self.targets, "checks": checks}
        return json.dumps({**found, "table": self.rows, "seen": self.seen}, indent=2) + "\n"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    columns = list(dict.fromkeys((row["ipc"], row["legacy"]) for row in rows))
    lines = list(dict.fromkeys((row["gpu"], row["mask"], row["engine"]) for row in rows))
    if not lines:
        return
    results = {(row["gpu"], row["mask"], row["ipc"], row["legacy"]): CELLS[row["result"]] for row in rows}
    head = [
        ["", "", "namespace", *(ipc for ipc, _ in columns)],
        ["GPU", "mask", "legacy IPC", *(legacy for _, legacy in columns)],
    ]
    body = [
        [str(gpu), mask, _short(engine), *(results.get((gpu, mask, *column), "-") for column in columns)]
        for gpu, mask, engine in lines
    ]
    widths = [max(map(len, column)) for column in zip(*head, *body, strict=True)]
    for line in (*head, *body):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _short(mask: str) -> str:
    """A mask with `4-7` for 4,5,6,7."""
    runs: list[list[int]] = []
    for gpu in map(int, mask.split(",")):
        if runs and gpu == runs[-1][-1] + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    words = (f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)  # noqa: PLR2004 - `0-1` is no shorter
    return ",".join(words)
