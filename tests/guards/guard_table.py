"""Write docs/guards.md: what plain pip, a guard that reads its words, and this project's guards do with each trap."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import trapping
from trapping import MODES, PIPS, ROOT
from traps import TRAPS

TABLE = ROOT / "docs" / "guards.md"
HEAD = """# What the guards stop

Written by `make guard-table` on {date}: Python {python}, pip {pips}. Every row is a run of real pip processes on an
environment with the stand-in base's distributions, against an index made for it (`tests/guards/traps.py`).

* **plain pip**: what `pip install -r` does to the base, which has a ROCm torch of a version that no index has.
* **text guard**: a dry run whose words are searched for `{expression}`, as public Dockerfiles do.
* **ours**: the recipe's own step, and the rule that speaks. Where pips differ, the versions stand behind the verdict.

Of {count} traps plain pip is harmed by {harmed}; the text guard stops {stopped} of those; ours refuses all of them, and
passes the {harmless} harmless ones.

| from | what is tried | plain pip | text guard | ours |
| --- | --- | --- | --- | --- |
"""


def together(verdicts: Mapping[str, str]) -> str:
    """One verdict, or each with the pips that give it."""
    if len(set(verdicts.values())) == 1:
        return next(iter(verdicts.values()))
    by = {verdict: [pip for pip in verdicts if verdicts[pip] == verdict] for verdict in verdicts.values()}
    return "; or ".join(f"{verdict} ({', '.join(pips)})" for verdict, pips in by.items())


def of_newest(cell: str) -> str:
    """The newest pip's verdict in a cell."""
    for part in cell.split("; or "):
        verdict, _, pips = part.removesuffix(")").rpartition(" (")
        if verdict and set(pips.split(", ")) <= set(PIPS):
            if "newest" in pips.split(", "):
                return verdict
        else:
            return part
    raise ValueError(cell)


def read(path: Path) -> dict[str, dict[str, str]]:
    """The rows of a written table by their titles."""
    page = path.read_text(encoding="utf-8").partition("\n## ")[0]  # what follows is another run's
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[1]: dict(zip(MODES, row[2:], strict=True)) for row in rows}


def text(found: Mapping[str, Mapping[str, Mapping[str, str]]], versions: Mapping[str, str]) -> str:
    """The page."""
    harmed = [title for title, row in found.items() if row["plain"]["newest"] not in {"installs", "fails"}]
    head = HEAD.format(
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        python=platform.python_version(),
        pips=", ".join(versions[version] + " (newest)" * (version == "newest") for version in PIPS),
        expression=trapping.EXPRESSION.pattern.replace("|", " or "),
        count=sum(bool(trap.by) for trap in TRAPS),
        harmed=len(harmed),
        stopped=sum(found[title]["text"]["newest"] == "stops" for title in harmed),
        harmless=sum(not trap.by for trap in TRAPS),
    )
    rows = [
        " | ".join([trap.case or "-", trap.title, *(together(found[trap.title][mode]) for mode in MODES)])
        for trap in TRAPS
    ]
    return head + "".join(f"| {row} |\n" for row in rows)


def main() -> None:
    cache = ROOT / ".cache" / "pips"
    with tempfile.TemporaryDirectory() as folder:
        found = trapping.verdicts(Path(folder), cache)
    versions = {version: trapping.pip_version(cache, version) for version in PIPS}
    _, heading, rest = TABLE.read_text(encoding="utf-8").partition("\n## ")
    TABLE.write_text(text(found, versions) + heading + rest, encoding="utf-8")
    sys.stdout.write(f"{TABLE.relative_to(ROOT)}: {len(found)} rows\n")


if __name__ == "__main__":
    main()
