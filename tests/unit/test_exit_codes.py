"""Exit codes as scripts read them: docs/exit-codes.md is made of the errors; and faults of our own, told as such."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from copies import copied
from manifests import REAL, ROOT

from builder import cli, errors, failure
from builder.errors import OUR_FAULT, STOPPED, BuilderError

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs/exit-codes.md"
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BuilderError)]
HEAD = """\
# Exit codes

Made of `builder/errors.py` and `builder/failure.py` by `make reference`; do not edit. What is wrong, where, and what to
do next is on standard error; standard output has data only. [engines.md](engines.md) has the messages about engines and
registries.

| code | name | what it says |
| --- | --- | --- |
"""


def page() -> str:
    rows = {0: ("", "Good."), OUR_FAULT: ("", "A fault of vime-images itself: a traceback, and how to report it.")}
    for kind in KINDS:
        first = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
        rows[kind.exit_code] = kind.__name__, first
    rows[BuilderError.exit_code] = "", "Whoever read standard output has closed it, as `head` does."
    for failed in failure.KINDS:
        name, text = rows.get(failed.exit_code, ("", ""))
        rows[failed.exit_code] = name or "BuildFailedError", text or f"A step of the Dockerfile failed: {failed.name}."
    for stop in (signal.SIGINT, signal.SIGTERM):
        rows[STOPPED + stop] = "", f"Stopped by {stop.name}."
    return HEAD + "".join(f"| {code} | {name} | {text} |\n" for code, (name, text) in sorted(rows.items()))


def test_the_page_of_exit_codes_is_what_the_errors_say(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/exit-codes.md is stale: make reference"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_error_says_what_to_do_next(kind: type[BuilderError]) -> None:
    for command in re.findall(r"python -m builder (\w+)", kind.remedy):
        assert command in cli.main.commands
    for target in re.findall(r"\bmake (\w+)", kind.remedy):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in re.findall(r"\bdocs/[\w-]+\.md", kind.remedy):
        assert (ROOT / page).is_file()
    assert re.search(r"python -m builder|make |docs/|wait", kind.remedy)


def test_a_refusal_without_a_hint_of_its_own_ends_with_that_of_its_kind(tmp_path: Path) -> None:
    project = copied(tmp_path)
    project.edit("templates/Dockerfile.j2", "{%", "{{ image.nothing }}{%")
    told = project.refusal(errors.RenderError, "check", REAL.stem)
    assert told.endswith(f"    hint: {errors.RenderError.remedy}\n")


def test_no_code_is_one_of_a_signal_or_of_our_own_faults() -> None:
    codes = {kind.exit_code for kind in KINDS} | {kind.exit_code for kind in failure.KINDS}
    assert OUR_FAULT not in codes
    assert max(codes) < OUR_FAULT


def test_a_fault_of_our_own_is_told_from_a_users_mistake(tmp_path: Path) -> None:
    project = copied(tmp_path)
    project.edit("builder/cli.py", "failures: list[BuilderError] = []", "failures: list[BuilderError] = [1 / 0]")
    done = subprocess.run(
        [sys.executable, "-m", "builder", "check", REAL.stem],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (OUR_FAULT, "")
    assert "Traceback" in done.stderr
    assert "error: a fault of vime-images itself: ZeroDivisionError\n    hint: report it" in done.stderr
    assert done.stderr.endswith(f"python -m builder check {REAL.stem}\n")


def test_a_reader_that_has_enough_is_no_fault() -> None:
    script = f"{sys.executable} -m builder check | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode in {0, BuilderError.exit_code}
