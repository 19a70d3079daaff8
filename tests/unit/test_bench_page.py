from pathlib import Path

import pytest

from benchmarks import page, run

RUN = {"date": "2026-12-02", "commit": "abc1234", "seconds": 7, "machine": "2 cores; load 0.1 when it began"}


def section(*targets: dict[str, object], **others: object) -> page.Section:
    rows = [["ours", 0.5, "x|y"], ["theirs", 1.0, ""]]
    told = {"title": "A cold command", "how": "In turn.", "columns": ["what", "median (s)", "note"], "rows": rows}
    return {**told, "targets": list(targets), "notes": ["a note"], "run": RUN, **others}


def target(value: float | None, allowed: float, *, at_least: bool = False) -> dict[str, object]:
    return {"what": "the ratio", "value": value, "allowed": allowed, "unit": "x", "at_least": at_least}


@pytest.mark.parametrize(
    ("value", "allowed", "at_least", "said"),
    [
        (1.5, 1.5, False, page.MET),
        (1.6, 1.5, False, page.SHORT),
        (9.9, 10, True, page.SHORT),
        (10, 10, True, page.MET),
        (0, 0, False, page.MET),
        (None, 10, True, page.UNKNOWN),
    ],
)
def test_a_target_is_met_or_falls_short_or_could_not_be_measured(
    value: float | None,
    allowed: float,
    at_least: bool,  # noqa: FBT001
    said: str,
) -> None:
    assert page.verdict(target(value, allowed, at_least=at_least)) == said


def test_the_page_has_each_target_and_links_it_to_its_section() -> None:
    text = page.page({"command": section(target(3.0, 1.5), target(None, 10, at_least=True))})
    assert (
        "| [command](#a-cold-command) | the ratio | 3 x | at most 1.5 x | `██████████` 200% | **falls short** |" in text
    )
    assert "| the ratio | unknown | at least 10 x |  | **could not be measured** |" in text
    assert "\n## A cold command\n\nIn turn.\n" in text
    assert "* `python -m benchmarks.command`, 2026-12-02, commit abc1234, 7 s. 2 cores; load 0.1 when it began" in text


def test_rows_have_bars_as_long_as_their_figures_and_no_cell_breaks_its_table() -> None:
    lines = page.page({"command": section()}).splitlines()
    assert f"| ours | 0.5 | x\\|y | `{'█' * (page.BAR // 2)}` |" in lines
    assert f"| theirs | 1 |  | `{'█' * page.BAR}` |" in lines


def test_a_benchmark_that_failed_is_no_silence() -> None:
    failed = section(failed="it ended with 3")
    assert "**Could not be measured**: it ended with 3." in page.page({"command": failed})
    assert page.short({"command": failed}) == ["command: it ended with 3"]


def test_what_falls_short_is_told_in_a_line_each() -> None:
    told = page.short({"command": section(target(3.0, 1.5), target(1.0, 1.5), target(None, 2))})
    assert told == [
        "command: falls short: the ratio: 3 x, at most 1.5 x wanted",
        "command: could not be measured: the ratio: unknown, at most 2 x wanted",
    ]


def test_the_table_names_every_benchmark() -> None:
    told = {path.stem for path in Path(run.__file__).parent.glob("*.py") if "telling import" in path.read_text("utf-8")}
    assert told == set(run.TABLE)
