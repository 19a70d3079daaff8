"""The changes that the guards are tried with: each is a program, another one, and known by a name that stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import run
from explained import EXPLAINED
from manifests import ROOT
from mutants import mutants
from trying import Outcome

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


TRIED = '''"""A rule."""

from __future__ import annotations

import os

KNOWN = (
    "a",
    "b",
)
FIRST, SECOND = ("a",), ("a",)
CHOSEN = SECOND[0]


def rule(word: str) -> bool:
    while word.startswith("x"):
        word = word[1:]
    if word not in KNOWN:
        return False
    return word != "b"


def idle() -> None:
    os.getpid()
'''
TESTS = """
import subprocess, sys
import pytest, program

@pytest.fixture(scope="module")
def shared():
    return program.rule("b")

def test_rule():
    assert not program.rule("c") and program.rule("xa")

def test_shared(shared):
    assert shared is False

def test_without_an_environment():
    code = "import sys; sys.path.insert(0, '.'); import program; program.idle()"
    subprocess.run([sys.executable, "-c", code], env={}, check=True)

def test_nothing():
    pass
"""
TRY = """
import json, sys
from pathlib import Path
import trying
from mutants import mutants
trying.SHORTEST_LIMIT_S = 5
root, scratch = map(Path, sys.argv[1:])
text = (root / "program.py").read_text()
trials = trying.Trials(root, "program.py", ["test_program.py"], scratch, text)
trials.learn()
print(json.dumps({each.name: [trials.tried(each).name, sorted(trials.asked(each))] for each in mutants(text)}))
"""


def test_only_the_tests_are_asked_in_which_a_line_runs_and_only_one_that_fails_has_noticed(tmp_path: Path) -> None:
    for name, text in {"project/program.py": TRIED, "project/test_program.py": TESTS, "scratch/told": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-c", TRY, str(tmp_path / "project"), str(tmp_path / "scratch")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests/mutants")}
    del environment["PYTEST_CURRENT_TEST"]  # of this test
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    outcomes = {name.partition(": ")[2]: outcome for name, (outcome, _) in found.items()}
    assert outcomes == {
        'remove an entry of `"a"`': "FAILED",
        'remove an entry of `"b"`': "SURVIVED",
        'remove an entry of `"a"` (2)': "SURVIVED",
        'remove an entry of `"a"` (3)': "BROKEN",
        'invert `word.startswith("x")`': "HUNG",
        "invert `word not in KNOWN`": "FAILED",
        "remove `return False`": "SURVIVED",
        'remove `return word != "b"`': "FAILED",
        "remove `os.getpid()`": "SURVIVED",
    }
    tests = {name: [test.partition("::")[2] for test in tests] for name, (_, tests) in found.items()}
    assert tests["idle: remove `os.getpid()`"] == ["test_without_an_environment"]
    assert tests["rule: remove `return False`"] == ["test_rule"]
    assert len(tests["rule: invert `word not in KNOWN`"]) == 4, "what a shared fixture runs is for all"


def test_a_run_goes_on_where_the_last_one_of_the_same_text_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PAGE", tmp_path / "guards.md")
    run.PAGE.write_text("# What the guards stop\n")
    program, every = next(iter(run.GUARDED)), mutants(PROGRAM)
    found = run.earlier(program, PROGRAM, every)
    assert found.tried == 0
    for mutant, outcome in zip(every, [*Outcome, Outcome.SURVIVED], strict=False):
        found.tried += 1
        found.add(mutant, outcome)
    row, survivors = run.told(program, every, found)
    assert row.endswith("| 11 | 5 | 1 | 1 | 1 | 0 | 2 |\n")
    run.written({program: row}, {program: survivors})
    assert run.earlier(program, PROGRAM, every) == found
    assert run.earlier(program, f"{PROGRAM}\n", every).tried == 0
    found.add(every[3], Outcome.FAILED)
    assert run.told(program, every, found)[0].endswith("| 11 | 5 | 2 | 1 | 1 | 0 | 1 |\n")
