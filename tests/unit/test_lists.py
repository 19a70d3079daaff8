"""The policy and the checks: what the programs in the image read is there, and no more."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import EVERY, REAL, ROOT, changed, facts_of

from builder import checklist, lists, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.manifest import Manifest

INSIDE = ROOT / "builder/inside"
SPELLING = ROOT / "tests/manifests/good/spelling.yaml"
# What the judge reads of each part of its policy.
READ_BY_THE_JUDGE = {
    "sealed": {"where"},
    "forbidden": {"reason", "where"},
    "constraints": {"version", "where"},
    "overrides": {"version", "where", "waived"},
    "provided": {"source", "where"},
}
READ_OF_A_SET = {"file", "without", "add", "project", "where"}
every_manifest = pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)


def policy_of(path: Path) -> dict[str, Any]:
    return lists.policy(manifest.load(path))


def sets_of(path: Path) -> dict[str, Any]:
    """What the judge goes by for one set alone, by the set's step."""
    fetched = manifest.load(path).fetched
    return {source.step("REQUIREMENTS"): lists.requirement_set(source) for source in fetched if source.requirements}


def checks_of(written: Manifest) -> list[dict[str, Any]]:
    return list(_checks(written))


def _checks(written: Manifest) -> Iterator[dict[str, Any]]:
    found = checklist.wanted(written, facts_of(written), finished=True, tests=True)["checks"]
    assert isinstance(found, Sequence)
    yield from found


@pytest.fixture(scope="module")
def kinds() -> Mapping[str, Any]:
    """The kinds of check that the image's program knows; it is loaded as in the image, beside its modules."""
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(INSIDE))
    try:
        found = runpy.run_path(str(INSIDE / "kinds.py"))["KINDS"]
    finally:
        sys.path[:] = before
        for name in {"checked", "device", "imports", "seal"} - known:
            sys.modules.pop(name, None)
    assert isinstance(found, Mapping)
    return found


def keys_read(program: str, name: str) -> set[str]:
    """The literal keys that a program takes out of a variable, or out of an attribute, of that name."""
    tree = ast.parse((INSIDE / program).read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = node.value
            named = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            found |= {str(node.slice.value)} if named == name else set()
    return found


# The policy


@every_manifest
def test_the_policy_has_what_the_judge_reads_and_nothing_else(path: Path) -> None:
    policy = policy_of(path)
    assert set(policy) - {"schema"} == keys_read("judge.py", "policy")
    assert policy["schema"] == lists.SCHEMA
    for part, wanted in READ_BY_THE_JUDGE.items():
        assert all(set(entry) == wanted for entry in policy[part].values()), part


def test_what_the_judge_reads_of_a_set_is_what_its_file_has() -> None:
    assert keys_read("judge.py", "rules") == READ_OF_A_SET
    assert all(set(entry) == READ_OF_A_SET for entry in sets_of(REAL).values())


@every_manifest
def test_every_place_that_the_judge_can_name_is_a_key_of_the_manifest(path: Path) -> None:
    written = manifest.load(path)
    policy = policy_of(path)
    assert policy["manifest"] == f"images/{path.stem}.yaml"
    for entries in (sets_of(path), *(policy[part] for part in READ_BY_THE_JUDGE)):
        for entry in entries.values():
            key = tuple(entry["where"].split("."))
            assert written.where(*key).line > 1
            assert written.where(*key) != written.where(*key[:-1]), f"{entry['where']} is not written"


@every_manifest
def test_no_line_number_is_in_the_image(path: Path) -> None:
    """A line number would change with every comment, and rebuild what follows: docs/decisions/003."""
    written = manifest.load(path)
    assert "(line" not in lists.text(lists.policy(written)) + lists.text(checklist.wanted(written, facts_of(written)))


@every_manifest
def test_every_requirement_set_has_its_step_and_no_other(path: Path) -> None:
    written = manifest.load(path)
    wanted = [source.step("REQUIREMENTS") for source in written.sources.values() if source.requirements]
    assert policy_of(path)["steps"] == wanted == list(sets_of(path))


def test_a_requirement_set_is_read_where_its_source_leaves_it() -> None:
    steps = sets_of(REAL)
    # The tree of a wheel does not stay, that of an editable source does.
    assert steps["REQUIREMENTS_VLLM"]["file"] == "/opt/vime-image/requirements/vllm/rocm.txt"
    assert steps["REQUIREMENTS_VLLM"]["without"] == ["tilelang"]
    assert steps["REQUIREMENTS_VIME"]["file"] == "/opt/vime/requirements.txt"
    assert steps["REQUIREMENTS_VIME"]["add"] == ["flash-linear-attention==0.4.2"]


def test_what_is_built_here_is_provided_by_its_distribution() -> None:
    provided = policy_of(REAL)["provided"]
    assert provided["megatron-core"] == {"source": "megatron", "where": "sources.megatron"}
    assert set(provided) == {"vllm", "torch-memory-saver", "vime", "megatron-core"}


# The checks


@every_manifest
def test_every_check_has_a_name_of_its_own_and_a_hint(path: Path) -> None:
    checks = checks_of(manifest.load(path))
    names = [check["name"] for check in checks]
    assert len(names) == len(set(names))
    assert all(check["hint"] for check in checks)


@every_manifest
def test_every_kind_of_check_is_known_in_the_image(path: Path, kinds: Mapping[str, Any]) -> None:
    assert {check["kind"] for check in checks_of(manifest.load(path))} <= set(kinds)


def test_every_kind_that_the_image_knows_is_asked_for(kinds: Mapping[str, Any]) -> None:
    assert {check["kind"] for check in checks_of(manifest.load(REAL))} == set(kinds)


@every_manifest
def test_a_check_holds_every_key_that_its_kind_reads(path: Path, kinds: Mapping[str, Any]) -> None:
    tree = ast.parse((INSIDE / "kinds.py").read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for check in checks_of(manifest.load(path)):
        nodes = [node for node in ast.walk(functions[kinds[check["kind"]].__name__]) if isinstance(node, ast.Subscript)]
        read = {
            node.slice.value
            for node in nodes
            if isinstance(node.value, ast.Name) and node.value.id == "check" and isinstance(node.slice, ast.Constant)
        }
        assert read <= set(check), check["name"]


@every_manifest
def test_the_list_is_of_this_image_and_its_interpreter(path: Path) -> None:
    written = manifest.load(path)
    listed = checklist.wanted(written, facts_of(written))
    assert (listed["schema"], listed["image"]) == (lists.SCHEMA, path.stem)
    assert listed["python"] == facts_of(written).python.executable


@every_manifest
def test_every_source_is_held_to_its_record_and_every_module_is_imported(path: Path) -> None:
    written = manifest.load(path)
    checks = checks_of(written)
    fetched = [source.name for source in written.sources.values() if source.recipe != "shipped"]
    assert [check["source"] for check in checks if check["kind"] == "source"] == fetched
    modules = [module for source in written.sources.values() for module in source.modules]
    modules += [module for wheel in written.prebuilt.values() for module in wheel.modules]
    assert [check["module"] for check in checks if check["kind"] == "import"] == modules


def test_a_variable_is_wanted_as_declared_or_absent() -> None:
    wanted = {
        check["variable"]: check["value"] for check in checks_of(manifest.load(SPELLING)) if check["kind"] == "env"
    }
    assert wanted["QUOTES"] == 'it\'s "$HOME" \\ # %'
    assert wanted["EMPTY"] == ""
    assert wanted["NVTE_FUSED_ATTN"] is None
    assert wanted["ROCR_VISIBLE_DEVICES"] is None


def test_a_name_that_two_sets_leave_out_is_checked_once() -> None:
    twice = (
        "      file: requirements.txt\n",
        "      file: requirements.txt\n      without:\n        tilelang:\n          reason: x\n",
    )
    absent = [check["distribution"] for check in checks_of(changed(REAL, twice)) if check["kind"] == "absent"]
    assert absent == ["tilelang"]


# Their text


@every_manifest
def test_the_text_says_what_the_value_says_with_one_entry_a_line(path: Path) -> None:
    written = manifest.load(path)
    for value in (lists.policy(written), checklist.wanted(written, facts_of(written))):
        text = lists.text(value)
        assert json.loads(text) == value
        assert list(json.loads(text)) == list(value)
        for part in value.values():
            rows = part.items() if isinstance(part, Mapping) else enumerate(part) if isinstance(part, list) else ()
            for key, entry in rows:
                row = json.dumps(entry) if isinstance(key, int) else f"{json.dumps(key)}: {json.dumps(entry)}"
                assert text.count(f"\n  {row}") == 1


leaves = st.none() | st.booleans() | st.integers() | st.text()
entries = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.dictionaries(st.text(), entries))
def test_every_value_survives_its_text(value: dict[str, object]) -> None:
    text = lists.text(value)
    assert json.loads(text) == value
    assert text.endswith("}\n")
    assert text.isascii(), "what a pager or a terminal makes of other characters is no matter of this file"


def test_another_reason_changes_one_line_of_the_policy() -> None:
    other = lists.text(lists.policy(changed(REAL, ("reason: a CUDA build\n", "reason: made for CUDA\n"))))
    pairs = zip(other.splitlines(), lists.text(policy_of(REAL)).splitlines(), strict=True)
    assert len([a for a, b in pairs if a != b]) == 1
