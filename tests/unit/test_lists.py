"""The judge's policy and the checks, derived from every manifest of the project."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from builder import facts, lists, manifest, render

ROOT = Path(__file__).parents[2]
every_manifest = pytest.mark.parametrize("path", sorted((ROOT / "images").glob("*.yaml")), ids=lambda path: path.stem)


def kinds_of_the_program() -> set[str]:
    """The keys of KINDS in check.py; the program is read, not imported."""
    tree = ast.parse((render.PROGRAMS / "check.py").read_text())
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "KINDS"
    )
    assert isinstance(table, ast.Dict)
    return {key.value for key in table.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


@every_manifest
def test_check_names_are_unique_and_every_check_says_what_to_change(path: Path) -> None:
    found = manifest.load(path)
    checks = lists.checks(found, facts.of(found, ROOT))["checks"]
    assert isinstance(checks, list)
    names = [check["name"] for check in checks]
    assert len(names) == len(set(names))
    assert all(check["hint"] for check in checks)


@every_manifest
def test_every_kind_is_one_that_the_program_knows_and_none_of_them_is_idle(path: Path) -> None:
    found = manifest.load(path)
    checks = lists.checks(found, facts.of(found, ROOT))["checks"]
    assert isinstance(checks, list)
    assert {check["kind"] for check in checks} == kinds_of_the_program()


@every_manifest
def test_the_text_is_the_value_with_one_entry_a_line(path: Path) -> None:
    found = manifest.load(path)
    for value in (lists.policy(found), lists.checks(found, facts.of(found, ROOT))):
        text = lists.text(value)
        assert json.loads(text) == value
        entries = sum(len(part) for part in value.values() if isinstance(part, (dict, list)))
        assert len(text.splitlines()) >= entries


@every_manifest
def test_the_policy_names_keys_of_the_manifest_and_no_lines(path: Path) -> None:
    """A line number would change with every comment, and rebuild what follows."""
    found = manifest.load(path)
    text = lists.text(lists.policy(found))
    assert "(line" not in text
    assert '"where": "sources.vllm.requirements"' in text


def test_every_provided_distribution_is_one_that_no_plan_may_bring() -> None:
    found = manifest.load(ROOT / "images/rocm7.14.yaml")
    provided = lists.policy(found)["provided"]
    assert isinstance(provided, dict)
    assert set(provided) == {source.distribution for source in found.sources.values()}
