"""Each rule of the generated file: a text that keeps it, and the smallest change that breaks it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builder import dockerfile, rules

GOOD = """\
# Made by a test.
ARG BASE_IMAGE=debian:12
FROM ${BASE_IMAGE}

RUN --mount=type=tmpfs,target=/tmp true

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

COPY <<'NOTE_TXT' /note.txt
a line
NOTE_TXT

ARG COMMIT=abc
RUN <<'FETCH'
echo "$COMMIT" | tee /commit
FETCH

ENV GPU_ARCHS="gfx942"

RUN <<'TOOLS'
python -m pip install --no-deps --require-hashes --requirement list.txt
python /opt/vime-image/bin/seal.py check TOOLS
TOOLS
"""

BREACHES = {
    "one_stage": ("FROM ${BASE_IMAGE}\n", "FROM ${BASE_IMAGE}\nFROM debian:12\n"),
    "builder_stops_first": ("RUN --mount=type=tmpfs,target=/tmp true\n", ""),
    "one_strict_shell": ('"-euo", "pipefail", ', ""),
    "no_build_context": ("COPY <<'NOTE_TXT' /note.txt\na line\nNOTE_TXT\n", "COPY note.txt /note.txt\n"),
    "no_syntax_line": ("# Made by a test.\n", "# syntax=docker/dockerfile:1\n"),
    "heredocs_are_quoted_and_named_once": ("<<'FETCH'", "<<FETCH"),
    "argument_stands_before_its_first_use": ("ARG COMMIT=abc\nRUN", "ARG COMMIT=abc\nRUN true\nRUN"),
    "argument_is_not_shadowed": ("COMMIT", "MAX_JOBS"),
    "every_pip_install_is_guarded": ("--no-deps --require-hashes ", ""),
    "default_is_not_shadowed": ('echo "$COMMIT"', 'echo "$COMMIT ${MAX_JOBS:-1}"'),
    "every_assertion_can_fail": ('echo "$COMMIT"', '! test "$COMMIT"'),
    "every_tool_is_in_the_base": ("tee /commit", "sponge /commit"),
    "no_variable_is_native": ('ENV GPU_ARCHS="gfx942"\n', ""),
    "no_foreign_rocm": ('echo "$COMMIT"', 'echo "$COMMIT" /opt/rocm/lib'),
    "lines_fit_the_parser": ("a line", "a" * 65_536),
}


BASE = rules.Base({"MAX_JOBS": None, "GPU_ARCHS": "native"}, {"tee", "python"})


def broken_rules(text: str) -> set[str]:
    found = rules.problems(text, Path("Dockerfile"), BASE)
    return {problem.message.rpartition("(")[2].rstrip(")") for problem in found}


def test_a_text_that_keeps_every_rule_has_no_problem() -> None:
    assert rules.problems(GOOD, Path("Dockerfile"), BASE) == []


@pytest.mark.parametrize("rule", sorted(BREACHES))
def test_each_rule_finds_its_breach_and_no_other_rule_does(rule: str) -> None:
    old, new = BREACHES[rule]
    assert old in GOOD
    assert broken_rules(GOOD.replace(old, new)) == {rule}


def test_every_rule_has_a_breach() -> None:
    assert {rule.__name__ for rule in rules.RULES} == set(BREACHES)


@pytest.mark.parametrize(
    "line",
    [
        "pip install torch",
        "python -m pip install --no-deps torch",
        "uv pip install torch",
        "python -m pip --quiet install --no-index ./x.whl",
        "python -m pip install --no-deps --require-hashes --force-reinstall --requirement list.txt",
        "python -m pip install --no-deps --require-hashes --extra-index-url https://x --requirement list.txt",
    ],
)
def test_no_form_of_pip_install_passes_unguarded(line: str) -> None:
    text = GOOD.replace('echo "$COMMIT"', f"{line}\npython /opt/vime-image/bin/seal.py check FETCH")
    assert "every_pip_install_is_guarded" in broken_rules(text)


def test_an_install_whose_step_does_not_compare_the_seal_is_found() -> None:
    assert broken_rules(GOOD.replace("python /opt/vime-image/bin/seal.py check TOOLS\n", "")) == {
        "every_pip_install_is_guarded"
    }


def test_a_hidden_failure_is_found() -> None:
    assert broken_rules(GOOD.replace('echo "$COMMIT"', 'echo "$COMMIT" || true')) == {"every_assertion_can_fail"}


def test_a_text_without_a_stage_is_found() -> None:
    text = GOOD.replace("ARG BASE_IMAGE=debian:12\nFROM ${BASE_IMAGE}\n", "")
    (problem,) = rules.problems(text, Path("Dockerfile"), BASE)
    assert problem.message == "0 stages instead of one (one_stage)"


MOUNT, SHELL = "RUN --mount=type=tmpfs,target=/tmp true\n", 'SHELL ["/bin/bash", "-euo", "pipefail", "-c"]\n'


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        (MOUNT, f"RUN true\n{MOUNT}", {"builder_stops_first"}),
        (MOUNT, f"COPY <<'EARLY' /early\nx\nEARLY\n{MOUNT}", {"builder_stops_first"}),
        (
            MOUNT,
            "RUN --mount=type=tmpfs,target=/tmp <<'EARLY'\ntrue\nEARLY\n",
            {"builder_stops_first", "one_strict_shell"},
        ),
        (SHELL, "", {"one_strict_shell"}),
        (SHELL, f"{SHELL}{SHELL}", {"one_strict_shell"}),
        (SHELL, f"RUN <<'EARLY'\ntrue\nEARLY\n{SHELL}", {"one_strict_shell"}),
        (SHELL, f"{SHELL}ADD <<'EARLY' /early\nx\nEARLY\n", {"no_build_context"}),
    ],
)
def test_what_stands_too_early_or_twice_is_found(old: str, new: str, broken: set[str]) -> None:
    assert broken_rules(GOOD.replace(old, new)) == broken


def test_a_build_argument_that_nothing_uses_is_found() -> None:
    assert broken_rules(f"{GOOD}ARG LAST=1\n") == {"argument_stands_before_its_first_use"}


def test_a_file_that_is_written_before_the_shell_is_set_is_no_script() -> None:
    shell = 'SHELL ["/bin/bash", "-euo", "pipefail", "-c"]\n'
    assert not broken_rules(GOOD.replace(shell, f"COPY <<'EARLY' /early\nx\nEARLY\n{shell}"))


def test_a_comment_about_an_install_is_none() -> None:
    assert not broken_rules(GOOD.replace('echo "$COMMIT"', '# pip install torch\necho "$COMMIT"'))


def test_two_steps_of_one_name_are_found() -> None:
    assert broken_rules(GOOD.replace("TOOLS", "FETCH")) == {"heredocs_are_quoted_and_named_once"}


def test_a_heredoc_that_never_ends_is_one_clear_problem() -> None:
    problems = rules.problems("FROM a\nRUN <<'X'\necho\n", Path("Dockerfile"), BASE)
    assert [problem.message for problem in problems] == ["line 2: heredoc X never ends"]


def test_continued_lines_are_one_instruction() -> None:
    (label,) = dockerfile.parse("LABEL a=1 \\\n      b=2\n")
    assert (label.keyword, label.text, label.line) == ("LABEL", "a=1 b=2", 1)


def test_a_step_is_named_by_its_delimiter() -> None:
    run, copy = dockerfile.parse("RUN --mount=type=cache,target=/c <<'STEP'\ntrue\nSTEP\nCOPY <<'F' /f\nx\nF\n")
    assert (run.name, copy.name) == ("STEP", "F")


def step(script: str) -> dockerfile.Instruction:
    (found,) = dockerfile.parse(f"RUN <<'STEP'\n{script}\nSTEP\n")
    return found


@pytest.mark.parametrize(
    ("script", "called"),
    [
        ("cat list | sort > out; rm list", "cat sort rm"),
        ('cp -R "$(dirname a/b)" c', "cp dirname"),
        ("jobs=$(awk '{ print $1 }' /proc/meminfo)", "awk"),
        ("A=1 B=2 make all 2>&1 | tee log", "make tee"),
        ("if ! curl x; then tail y; fi", "curl tail"),
        ("# git would be\necho cat", ""),
        ("ln -s \\\n  file place && chmod 755 \\\n  file", "ln chmod"),
        ('case "$x" in\n  gfx942 | gfx950) ;;\n  *) echo bad; exit 1 ;;\nesac', ""),
        ("/opt/venv/bin/python /opt/vime-image/bin/source.py fetch vllm", "git"),
    ],
)
def test_what_a_step_calls_is_read_from_its_script(script: str, called: str) -> None:
    assert dockerfile.commands(step(script)) == set(called.split())


def test_nobody_is_told_of_tools_where_nobody_knows_them() -> None:
    text = GOOD.replace("tee", "sponge")
    assert rules.problems(text, Path("Dockerfile"), rules.Base({"GPU_ARCHS": "native"})) == []


@pytest.mark.parametrize("line", ['ENV GPU_ARCHS="native"', "ENV GPU_ARCHS=native", 'ENV HIP_ARCHITECTURES="native"'])
def test_a_variable_that_the_file_sets_to_native_is_found(line: str) -> None:
    text = GOOD.replace('ENV GPU_ARCHS="gfx942"', f'ENV GPU_ARCHS="gfx942"\n{line}')
    assert broken_rules(text) == {"no_variable_is_native"}


def test_no_word_of_the_shell_is_called_a_tool() -> None:
    """All that bash itself knows of these, as it says."""
    words = "case cd declare do done echo elif else esac exec exit export false fi for if local printf read return set"
    words += " test then trap true unset until wait while { !"
    said = subprocess.run(["bash", "-c", "compgen -b; compgen -k"], capture_output=True, text=True, check=True).stdout
    assert set(words.split()) <= set(said.split())
    assert [word for word in words.split() if word in dockerfile.commands(step(f"{word} x"))] == []


def test_only_an_assignment_before_a_command_leaves_a_command_to_be_expected() -> None:
    assert dockerfile.commands(step("CC=x make")) == {"make"}
    assert dockerfile.commands(step("make CC=x other")) == {"make"}


def test_a_comment_is_no_instruction() -> None:
    assert [each.keyword for each in dockerfile.parse("# FROM a\n  # FROM b\n\nFROM c\n")] == ["FROM"]


@pytest.mark.parametrize("word", ["if", "then", "else", "elif", "while", "until", "do", "!", "{"])
def test_what_follows_a_word_of_the_shell_is_called(word: str) -> None:
    assert dockerfile.commands(step(f"{word} git x")) == {"git"}
