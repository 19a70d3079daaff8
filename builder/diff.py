"""Two sides compared: pins, distributions, variables, layers, checks; as a table, as JSON, as Markdown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from builder.report import cell
from builder.told import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from builder.side import Side

SECTIONS = ("pins", "distributions", "env", "layers", "checks")
NOTHING = "-"
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Row:
    """What differs; None on the side that has nothing of it."""

    key: str
    a: str | int | None
    b: str | int | None


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of thing; with `unknown`, nothing was compared, and that is why."""

    name: str
    rows: tuple[Row, ...]
    same: int
    unknown: str | None


@dataclass(frozen=True, slots=True)
class Diff:
    a: str
    b: str
    sections: tuple[Section, ...]

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def table(self) -> str:
        lines = ["a = " + self.a, "b = " + self.b, *(line for each in self.sections for line in _lines(each))]
        return plain("\n".join(lines))

    def markdown(self) -> str:
        lines = [f"## {_cell(self.a)} and {_cell(self.b)}"]
        for section in self.sections:
            lines += ["", f"### {_headline(section)}"]
            if section.rows:
                lines += ["", f"| | {_cell(self.a)} | {_cell(self.b)} |", "| --- | --- | --- |"]
            lines += [f"| {' | '.join(map(_cell, _texts(section, row)))} |" for row in section.rows]
        return "\n".join(lines)


FORMATS: Mapping[str, Callable[[Diff], str]] = {"table": Diff.table, "json": Diff.json, "markdown": Diff.markdown}


def diff(a: Side, b: Side) -> Diff:
    """What differs between two sides; layers with the largest change first, all else by name."""
    return Diff(a.title, b.title, tuple(_section(name, a, b) for name in SECTIONS))


def _section(name: str, a: Side, b: Side) -> Section:
    for side in (a, b):
        if name in side.unknown:
            return Section(name, (), 0, side.unknown[name])
    before, after = getattr(a, name), getattr(b, name)
    keys = {*before, *after}
    if name == "env" and a.is_built != b.is_built:
        keys = set(after if a.is_built else before)  # what a base sets, no manifest declares
    rows = [Row(key, before.get(key), after.get(key)) for key in sorted(keys) if before.get(key) != after.get(key)]
    if name == "layers":
        rows.sort(key=lambda row: -abs((before.get(row.key) or 0) - (after.get(row.key) or 0)))
    return Section(name, tuple(rows), len(keys) - len(rows), None)


def _headline(section: Section) -> str:
    if section.unknown:
        return f"{section.name}: unknown, {section.unknown}"
    return f"{section.name}: {len(section.rows)} differ, {section.same} are the same"


def _texts(section: Section, row: Row) -> tuple[str, str, str]:
    def told(value: str | int | None) -> str:
        if value is None:
            return NOTHING
        return f"{int(value) / MEGABYTE:,.3f} MB" if section.name == "layers" else str(value)

    return row.key, told(row.a), told(row.b)


def _lines(section: Section) -> Iterator[str]:
    yield f"\n{_headline(section)}"
    texts = [_texts(section, row) for row in section.rows]
    widths = [max((len(text[column]) for text in texts), default=0) for column in (0, 1)]
    for key, before, after in texts:
        yield f"  {key:<{widths[0]}}  {before:<{widths[1]}}  {after}"


def _cell(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return f"`{escaped}`" if escaped and "`" not in escaped else cell(text)
