"""The changes that the guards are tried with: each is a program, another one, and known by a name that stays."""

from __future__ import annotations

import pytest
import run
from explained import EXPLAINED
from manifests import ROOT
from mutants import mutants

PROGRAM = '''"""A rule."""

from __future__ import annotations

KNOWN = ("a", "b")


def rule(words: list[str]) -> list[str]:
    """What is wrong."""
    if not words or words[0] == "é" and len(words) > 1:
        raise ValueError("é")
    found = [word for word in words if word in KNOWN]
    print(found)
    return found
'''


def test_every_kind_of_change_is_made_once() -> None:
    found = {mutant.name: mutant.text for mutant in mutants(PROGRAM)}
    assert list(found) == [
        'module: remove an entry of `"a"`',
        'module: remove an entry of `"b"`',
        'rule: invert `not words or words[0] == "é" and len(words) > 1`',
        "rule: leave out `not words`",
        'rule: leave out `words[0] == "é" and len(words) > 1`',
        'rule: leave out `words[0] == "é"`',
        "rule: leave out `len(words) > 1`",
        'rule: remove `raise ValueError("é")`',
        "rule: invert `word in KNOWN`",
        "rule: remove `print(found)`",
        "rule: remove `return found`",
    ]
    assert 'KNOWN = ("b")' in found['module: remove an entry of `"a"`']
    assert 'words[0] == "é" and True:' in found["rule: leave out `len(words) > 1`"]
    assert "if (not (word in KNOWN))]" in found["rule: invert `word in KNOWN`"]


def test_two_changes_of_one_text_have_two_names() -> None:
    found = [mutant.name for mutant in mutants("def f():\n    g()\n    g()\n")]
    assert found == ["f: remove `g()`", "f: remove `g()` (2)"]


@pytest.mark.parametrize("program", run.GUARDED)
def test_what_is_explained_of_a_guard_is_a_change_of_it(program: str) -> None:
    names = [mutant.name for mutant in mutants((ROOT / program).read_text(encoding="utf-8"))]
    assert len(set(names)) == len(names) > 10
    assert [name for of, name in EXPLAINED if of == program and name not in names] == []
    assert all((ROOT / test).is_file() for test in run.GUARDED[program])
