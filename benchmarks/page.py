"""Results of benchmarks as a page that GitHub shows: targets, tables, bars of text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Section = dict[str, Any]  # what a benchmark told, with `run`: when, on what, at which commit
BAR = 24  # characters
MET, SHORT, UNKNOWN = "met", "falls short", "could not be measured"
HEAD = """\
# Performance

Written by `make bench`. Ratios count: programs take turns on one machine, whole processes, medians. Where a peer does
more than we do, its row or a note says so.

```
make bench                              # all of it; an hour, with a container engine
make bench ARGS="command rendering"     # some; the other sections stay as they are
```

"""


def verdict(target: Mapping[str, Any]) -> str:
    value, allowed = target["value"], target["allowed"]
    if value is None:
        return UNKNOWN
    return MET if (value >= allowed if target["at_least"] else value <= allowed) else SHORT


def page(sections: Mapping[str, Section]) -> str:
    parts = [HEAD, "## Targets\n\n", *_table(_TARGETS, list(_verdicts(sections)))]
    for name, section in sections.items():
        parts += ["\n", *_section(name, section)]
    return "".join(parts)


def short(sections: Mapping[str, Section]) -> list[str]:
    """A line for each target that is not met, and each benchmark that failed."""
    lines = [f"{name}: {section['failed']}" for name, section in sections.items() if "failed" in section]
    lines += [
        f"{name}: {verdict(target)}: {target['what']}: {_value(target)}, {_allowed(target)} wanted"
        for name, section in sections.items()
        for target in section["targets"]
        if verdict(target) != MET
    ]
    return lines


_TARGETS = ("benchmark", "what", "measured", "target", "", "")


def _verdicts(sections: Mapping[str, Section]) -> Iterator[Sequence[object]]:
    for name, section in sections.items():
        link = f"[{name}](#{_anchor(section['title'])})"
        for target in section["targets"]:
            said = verdict(target)
            shown = said if said == MET else f"**{said}**"
            yield link, target["what"], _value(target), _allowed(target), _of_allowed(target), shown
        if "failed" in section:
            yield link, section["failed"], "", "", "", f"**{UNKNOWN}**"


def _section(name: str, section: Section) -> Iterator[str]:
    run = section["run"]
    yield f"## {section['title']}\n\n"
    if section["how"]:
        yield f"{section['how']}\n\n"
    if "failed" in section:
        yield f"**{UNKNOWN.capitalize()}**: {section['failed']}.\n\n"
    else:
        columns, rows = _with_bars(section["columns"], section["rows"])
        yield from _table(columns, rows)
        yield "\n"
    yield from (f"* {note}\n" for note in section["notes"])
    yield f"* `python -m benchmarks.{name}`, {run['date']}, commit {run['commit']}, {run['seconds']} s. "
    yield f"{run['machine']}\n"


def _with_bars(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[list[str], list[list[object]]]:
    """With bars for the first column that has a unit in brackets and nothing but numbers, as long as they are."""
    for at, name in enumerate(columns):
        values = [row[at] for row in rows if row[at] is not None]
        if re.search(r"\((s|x|ms|MiB|steps)\)$", name) and values and all(isinstance(v, (int, float)) for v in values):
            longest = max(values)  # type: ignore[type-var]
            bars = [_bar(row[at] / longest if longest and row[at] is not None else 0) for row in rows]  # type: ignore[operator]
            return [*columns, ""], [[*row, bar] for row, bar in zip(rows, bars, strict=True)]
    return [*columns], [[*row] for row in rows]


def _bar(share: float) -> str:
    """A bar that is never longer than its place, and never quite absent where there is something."""
    length = min(BAR, max(1, round(share * BAR))) if share > 0 else 0
    return f"`{'█' * length}`" if length else ""


def _of_allowed(target: Mapping[str, Any]) -> str:
    """How much of what is allowed a figure takes; of a least, how much of the figure was asked for."""
    value, allowed = target["value"], target["allowed"]
    if value is None:
        return ""
    part, whole = (allowed, value) if target["at_least"] else (value, allowed)
    if not whole:
        return ""
    share = part / whole
    return f"`{('█' * min(10, round(share * 10))).ljust(10, '░')}` {share:.0%}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    numbers = [all(isinstance(row[at], (int, float, type(None))) for row in rows) for at in range(len(columns))]
    rule = ["--:" if right else "---" for right in numbers]
    return [f"| {' | '.join(map(_cell, row))} |\n" for row in (columns, rule, *rows)]


def _cell(value: object) -> str:
    match value:
        case None:
            return "unknown"
        case float():
            return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 (three digits)
        case _:
            return str(value).replace("|", r"\|").replace("\n", " ")


def _value(target: Mapping[str, Any]) -> str:
    return "unknown" if target["value"] is None else f"{_cell(target['value'])} {target['unit']}"


def _allowed(target: Mapping[str, Any]) -> str:
    return f"{'at least' if target['at_least'] else 'at most'} {_cell(target['allowed'])} {target['unit']}"


def _anchor(title: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
