"""Every trap of the field with real pips: the recipe's own step refuses it, names why, and the base is untouched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import guard_table
import pytest
import trapping
import wheels
from trapping import PIPS, ROOT
from traps import TRAPS, Trap

Outcomes = Mapping[tuple[str, str], Any]
CACHE = ROOT / ".cache" / "pips"


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcomes]:
    """What came of every trap, by pip; two at a time."""

    def of(version: str) -> Outcomes:
        folder = tmp_path_factory.mktemp("bench")
        made = trapping.bench(folder, wheels.pip_files(CACHE, version))
        outcomes = trapping.outcomes(made, TRAPS, ["plain", "text", "ours"] if version == "newest" else ["ours"])
        shutil.rmtree(folder)
        return outcomes

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(PIPS, pool.map(of, PIPS), strict=True))


every_trap = pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.title.replace(" ", "-"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", PIPS)
@every_trap
def test_a_trap_is_caught_by_its_rule_and_what_is_harmless_passes(
    found: Mapping[str, Outcomes], trap: Trap, version: str
) -> None:
    trapping.assert_caught(trap, found[version][trap.title, "ours"])


@every_trap
def test_the_committed_table_has_these_verdicts(found: Mapping[str, Outcomes], trap: Trap) -> None:
    written = guard_table.read(guard_table.TABLE)[trap.title]
    ours = {version: outcomes[trap.title, "ours"] for version, outcomes in found.items()}
    plain = found["newest"][trap.title, "plain"]
    for mode in ("plain", "text"):
        wanted = guard_table.of_newest(written[mode])
        assert trapping.verdict(mode, found["newest"][trap.title, mode], plain) == wanted, mode
    assert {trapping.verdict("ours", outcome, plain) for outcome in ours.values()} == {written["ours"]}


def test_the_table_has_every_trap_and_no_other() -> None:
    assert list(guard_table.read(guard_table.TABLE)) == [trap.title for trap in TRAPS]


def test_no_harmful_trap_passes_the_guard_that_the_table_shows() -> None:
    rows = guard_table.read(guard_table.TABLE)
    assert {title for title, row in rows.items() if not row["ours"].startswith(("refuses: ", "installs"))} == set()
    assert [trap.title for trap in TRAPS if trap.by and rows[trap.title]["ours"] == "installs"] == []


def test_every_case_of_the_family_that_a_step_can_meet_has_a_trap() -> None:
    """A26 and A32 are also the checks' and the recipe's; A10 and the like are no install."""
    wanted = [1, 2, 3, 4, 7, 8, 9, 12, 14, 15, 16, 17, 19, 21, 22, 23, 25, 26, 28, 29, 31]
    assert {f"A{number:02}" for number in wanted} - {trap.case for trap in TRAPS} == set()


def titles() -> Iterator[str]:
    yield from (trap.title for trap in TRAPS)


def test_no_two_traps_have_one_title() -> None:
    assert len(set(titles())) == len(TRAPS)


def test_the_pips_are_kept_between_runs() -> None:
    folder = Path(CACHE)
    assert all(wheels.pip_files(folder, version).is_dir() for version in PIPS)
