"""What a report says, and how it is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from builder.report import Check, Outcome, Report, write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def check(name: str, outcome: Outcome, detail: str = "") -> Check:
    return Check(name=name, kind="env", outcome=outcome, detail=detail, hint="change it", seconds=0.25)


def report(*checks: Check, pins: str = "as manifest") -> Report:
    return Report(
        image="demo",
        image_id="sha256:1",
        tag=None,
        gpu_targets=("gfx942",),
        pins=pins,
        arguments={},
        checks=checks,
    )


def test_the_first_line_counts_all_three_outcomes_and_says_whose_the_pins_are() -> None:
    found = report(check("a", "passed"), check("b", "could not run", "no GPU"), pins="overridden")
    assert found.table().splitlines()[0] == ("demo for gfx942: 1 passed, 0 failed, 1 could not run (pins: overridden)")


def test_what_could_not_run_is_never_shown_as_passed() -> None:
    row = next(line for line in report(check("b", "could not run", "no GPU")).table().splitlines() if " b " in line)
    assert row.split()[:3] == ["could", "not", "run"]


def test_failures_come_first_with_detail_and_hint() -> None:
    rows = report(check("fine", "passed"), check("broken", "failed", "1 is not 2")).table().splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["FAILED", "1", "hint:", "ok"]


@pytest.mark.parametrize(
    ("outcomes", "passed"),
    [((), False), (("passed",), True), (("passed", "failed"), False), (("could not run",), False)],
)
def test_an_image_passes_when_something_ran_and_nothing_failed(outcomes: tuple[Outcome, ...], *, passed: bool) -> None:
    assert report(*(check(str(number), outcome) for number, outcome in enumerate(outcomes))).passed is passed


def test_json_says_everything_with_a_schema_number() -> None:
    found = json.loads(report(check("a", "passed")).json())
    assert (found["schema"], found["counts"]) == (1, {"passed": 1, "failed": 0, "could_not_run": 0})
    assert found["checks"][0]["name"] == "a"


def test_a_failed_write_leaves_the_old_file_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \udcff")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["report.json"]
