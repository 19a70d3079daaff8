"""No rule of the judge or of the seal is there for nothing: without it, a trap is no longer caught by it."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest
import trapping
import wheels
from test_traps import CACHE
from trapping import INSIDE, MARKS
from traps import TRAPS

TABLES = {"judge": ("LINES", "PLAN", "MACHINE", "FILES"), "seal": ("BASE", "CHANGES", "OWNERS")}


def rules_of(program: str) -> list[str]:
    """The names in the tables of rules of a program."""
    found: list[str] = []
    for node in ast.parse((INSIDE / f"{program}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in TABLES[program]:
            assert isinstance(node.value, ast.Tuple)
            found += [ast.unparse(item) for item in node.value.elts]
    return found


RULES = [(program, rule) for program in TABLES for rule in rules_of(program)]


def test_every_rule_is_known_by_what_it_says() -> None:
    assert len(RULES) > 15
    assert [rule for _, rule in RULES if rule not in MARKS] == []


def test_every_rule_has_its_trap() -> None:
    assert {rule for _, rule in RULES} - {trap.by for trap in TRAPS} == set()


@pytest.fixture(scope="session")
def pip() -> Path:
    return wheels.pip_files(CACHE, "newest")


@pytest.mark.parametrize(("program", "rule"), RULES)
def test_without_a_rule_a_verdict_changes(tmp_path: Path, pip: Path, program: str, rule: str) -> None:
    inside = tmp_path / "inside"
    shutil.copytree(INSIDE, inside, ignore=shutil.ignore_patterns("__pycache__"))
    text = (inside / f"{program}.py").read_text(encoding="utf-8")
    without, count = re.subn(rf"^    {rule},\n", "", text, flags=re.MULTILINE)
    assert count == 1
    (inside / f"{program}.py").write_text(without, encoding="utf-8")
    made = trapping.bench(tmp_path / "bench", pip, inside)
    for trap in [trap for trap in TRAPS if trap.by == rule]:
        outcome = trapping.outcomes(made, [trap], ["ours"])[trap.title, "ours"]
        if not outcome["code"] or rule not in trapping.rules(outcome["said"]):
            return
    pytest.fail(f"without {rule} every trap is caught as before")
