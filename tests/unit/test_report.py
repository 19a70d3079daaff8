"""What a report says, and how it is written."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import junitparser
import pydantic
import pytest

from builder.errors import UnwritableError, UsageError
from builder.files import write_atomically, write_together
from builder.report import FORMATS, Check, Outcome, Report, json_schema

SCHEMA = Path(__file__).parents[2] / "schema" / "report.schema.json"


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


def test_strictly_nothing_may_be_left_untried() -> None:
    tried, untried = check("a", "passed"), check("b", "could not run", "no GPU")
    assert (report(tried, untried).passed, report(tried, untried).passed_strictly) == (True, False)
    assert report(tried).passed_strictly
    assert not report().passed_strictly


def test_the_schema_of_a_report_is_the_one_of_its_types(request: pytest.FixtureRequest) -> None:
    text = json.dumps(json_schema(), indent=1) + "\n"
    if request.config.getoption("--update-golden"):
        SCHEMA.write_text(text)
    assert SCHEMA.read_text() == text


def test_a_report_as_json_fits_its_schema_and_is_read_back_whole() -> None:
    one = report(check("a", "passed"), check("b", "could not run", "no GPU"))
    found = json.loads(one.json())
    schema = json.loads(SCHEMA.read_text())
    assert list(found) == schema["required"] == list(schema["properties"])
    assert set(found["counts"]) == set(schema["properties"]["counts"]["required"])
    assert found["schema"] == schema["properties"]["schema"]["const"]
    rest = {name: value for name, value in found.items() if name not in ("schema", "counts")}
    assert pydantic.TypeAdapter(Report).validate_python(rest) == one


THREE = (
    check("fine", "passed", "all is well"),
    check("br*ken", "failed", "1 <is> not 2 | or\x00 3\nsecond line"),
    check("later", "could not run", "no GPU"),
)


def test_junit_counts_failures_and_what_was_skipped_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(report(*THREE).as_file(path))
    (suite,) = list(junitparser.JUnitXml.fromfile(str(path)))
    assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (3, 1, 1, 0)
    fine, broken, later = list(suite)
    assert (fine.is_passed, later.is_skipped) == (True, True)
    assert broken.result[0].message == "1 <is> not 2 | or\N{REPLACEMENT CHARACTER} 3"
    assert broken.result[0].text.splitlines()[1:] == ["second line", "hint: change it"]
    assert later.result[0].message == "no GPU"
    assert ET.fromstring(path.read_text()).tag == "testsuites"  # noqa: S314 - our own


def test_markdown_shows_failures_first_and_nothing_of_them_as_markup() -> None:
    lines = report(*THREE).markdown().splitlines()
    assert lines[0] == "**demo for gfx942: 1 passed, 1 failed, 1 could not run (pins: as manifest)**"
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert rows == [
        "| failed | br\\*ken | 1 \\<is\\> not 2 \\| or 3<br>second line<br>hint: change it |",
        "| could not run | later | no GPU |",
    ]
    assert lines[lines.index("<summary>1 passed</summary>") + 2] == "- fine"


def test_a_file_s_ending_is_its_format(tmp_path: Path) -> None:
    one = report(*THREE)
    found = {ending: one.as_file(tmp_path / f"report{ending}") for ending in FORMATS}
    assert found == {".json": one.json(), ".md": one.markdown(), ".txt": one.table(), ".xml": one.junit()}
    with pytest.raises(UsageError, match=r"known are .json, .md, .txt, .xml"):
        one.as_file(tmp_path / "report.pdf")


def test_a_failed_write_leaves_the_old_file_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \udcff")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["report.json"]


def test_of_several_files_all_are_as_they_were_where_the_last_cannot_be_replaced(tmp_path: Path) -> None:
    old, new, folder = tmp_path / "old", tmp_path / "new", tmp_path / "folder"
    old.write_text("old")
    (folder / "x").mkdir(parents=True)
    with pytest.raises(UnwritableError):
        write_together({old: b"1", new: b"2", folder: b"3"})
    assert old.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"old", "folder"}
