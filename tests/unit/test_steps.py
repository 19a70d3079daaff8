"""One step of a generated file, on the file that is committed."""

from __future__ import annotations

import pytest
from manifests import REAL, ROOT

from builder import dockerfile, manifest, steps
from builder.errors import UsageError

TEXT = (ROOT / manifest.load(REAL).dockerfile).read_text(encoding="utf-8")


def test_every_script_has_a_name() -> None:
    found = steps.names(TEXT)
    assert {"SEAL_BASE", "BUILD_VLLM", "VERIFY"} <= set(found)
    assert "JUDGE_PY" not in found, "a file is no step that could run anew"


def test_the_file_before_a_step_ends_with_the_arguments_that_the_step_sees() -> None:
    text = steps.before(TEXT, "BUILD_VLLM")
    assert TEXT.startswith(text)
    assert dockerfile.parse(text)[-1].text.startswith("VLLM_COMMIT=")
    assert "BUILD_VLLM" not in steps.names(text)


def test_a_script_is_what_the_shell_gets() -> None:
    script = steps.script("FROM x\nRUN <<'A'\necho one\n\necho two\nA\n", "A")
    assert script == "echo one\n\necho two\n"


def test_a_mark_changes_its_own_step_alone() -> None:
    text = steps.run_anew(TEXT, {"INSTALL_VIME": "first", "gone": "x"})
    before, after = dockerfile.parse(TEXT), dockerfile.parse(text)
    changed = [new.name for old, new in zip(before, after, strict=True) if old.heredocs != new.heredocs]
    lines = [
        new
        for old, new in zip(before, after, strict=True)
        if [h.body for h in old.heredocs] != [h.body for h in new.heredocs]
    ]
    assert changed[0] == "INSTALL_VIME"  # the heredocs behind it stand a line lower
    assert [step.name for step in lines] == ["INSTALL_VIME"]
    assert lines[0].heredocs[0].body[0] == "# run anew: first"


def test_marks_of_several_steps_each_stand_in_their_own() -> None:
    text = steps.run_anew("FROM x\nRUN <<'A'\n1\nA\nRUN <<'B'\n2\nB\n", {"A": "a", "B": "b"})
    assert (steps.script(text, "A"), steps.script(text, "B")) == ("# run anew: a\n1\n", "# run anew: b\n2\n")


def test_no_mark_no_change() -> None:
    assert steps.run_anew(TEXT, {}) == TEXT


@pytest.mark.parametrize("ask", [steps.before, steps.script])
def test_a_wrong_name_names_the_near_one(ask: object) -> None:
    with pytest.raises(UsageError, match="did you mean 'BUILD_VLLM'"):
        ask(TEXT, "BULD_VLLM")  # type: ignore[operator]
