"""Templates by a list of edits: each is refused by the rule that it breaks, and no line of a template is without effect."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from manifests import EVERY, REAL, SECOND, TESTS, changed, facts_of, rendered

from builder import dockerfile, manifest, render
from builder.dockerfile import Instruction
from builder.errors import RenderError
from builder.manifest import Manifest

PIP = "every_pip_install_is_guarded"
# A template, what stands there, what would stand there, and the rule or promise that it breaks.
EDITS = (
    ("macros.j2", "<<'{{ name }}'\n{{ caller", "<<{{ name }}\n{{ caller", "heredocs_are_quoted_and_named_once"),
    ("macros.j2", "<<'{{ name }}' {{ path }}", "<<{{ name }} {{ path }}", "heredocs_are_quoted_and_named_once"),
    ("macros.j2", '--commit "${{ source.commit_argument }}" ', "", "argument_stands_before_its_first_use"),
    ("macros.j2", "--no-index --no-deps", "--no-index", PIP),
    ("macros.j2", "--no-index --no-deps", "--no-deps", PIP),
    ("macros.j2", " --no-build-isolation", "", PIP),
    ("macros.j2", "install --no-index", "install --force-reinstall --no-index", PIP),
    ("macros.j2", "-B {{ home }}/bin/judge.py install", "-m pip install", PIP),
    ("macros.j2", '{{ python }} {{ home }}/bin/seal.py check {{ source.step("REQUIREMENTS") }}\n', "", "seal"),
    ("base.j2", "RUN --mount=type=tmpfs,target=/tmp true\n", "", "builder_stops_first"),
    ("base.j2", '"-euo", "pipefail", ', "", "one_strict_shell"),
    ("base.j2", "FROM ${BASE_IMAGE}\n", "FROM ${BASE_IMAGE} AS one\nFROM one\n", "one_stage"),
    ("base.j2", "ARG BASE_IMAGE={{", "# syntax=docker/dockerfile:1\nARG BASE_IMAGE={{", "no_syntax_line"),
    ("base.j2", "chmod +x {{ path | shell }}", "chmod +x {{ path | shell }} || true", "every_assertion_can_fail"),
    ("base.j2", "test -e {{ link.to", "! test -e {{ link.to", "every_assertion_can_fail"),
    ("base.j2", "--require-hashes ", "", PIP),
    ("base.j2", "{{ python }} {{ home }}/bin/seal.py check BUILD_TOOLS\n", "", PIP),
    ("prebuilt.j2", "--require-hashes ", "", PIP),
    ("prebuilt.j2", "{{ python }} {{ home }}/bin/seal.py add {{ install_step(name) }} {{ name | shell }}\n", "", PIP),
    ("judge.j2", "{{ python }} {{ home }}/bin/seal.py check REMOVE\n", "", "seal"),
    ("sources/wheel.j2", "{{ python }} {{ home }}/bin/seal.py add", "# add", PIP),
    ("sources/wheel.j2", "export MAX_JOBS=$jobs", "export MAX_JOBS=${MAX_JOBS:-$jobs}", "default_is_not_shadowed"),
    ("sources/wheel.j2", "cd {{ source.checkout", "ls /opt/rocm; cd {{ source.checkout", "no_foreign_rocm"),
    ("sources/editable.j2", "{{ python }} {{ home }}/bin/seal.py add", "# add", PIP),
    ("environment.j2", "ENV GPU_ARCHS=${GPU_TARGETS}\n", "ENV GPU_ARCHS=native\n", "no_variable_is_native"),
    ("environment.j2", "ENV GPU_ARCHS", "COPY a /a\nENV GPU_ARCHS", "no_build_context"),
    ("environment.j2", "ENV GPU_ARCHS", "ARG MAX_JOBS=1\nENV MAX_JOBS=$MAX_JOBS GPU_ARCHS", "argument_is_not_shadowed"),
    ("verification.j2", "{{ python }} {{ home }}/bin/check.py run", "# run", "verified"),
    ("verification.j2", "RUN {{ python }} -B {{ home }}/bin/check.py proof", "# proof", "verified"),
)
SPELLING = TESTS / "good" / "spelling.yaml"
SHORTEST = 3  # letters of a line that does something


def broken_promises(text: str) -> set[str]:
    """What no rule of the text alone can tell: it is true of these templates."""
    steps = [step for step in dockerfile.parse(text) if step.keyword == "RUN"]
    seal = [step.name for step in steps if "bin/judge.py" in script(step) and "bin/seal.py" not in script(step)]
    checks = [word for step in steps for word in ("check.py run", "check.py proof") if word in script(step)]
    last = [word for step in steps[-2:] for word in ("check.py run", "check.py proof") if word in script(step)]
    verified = checks == last == ["check.py run", "check.py proof"]
    return {*(["seal"] if seal else []), *([] if verified else ["verified"])}


def script(step: Instruction) -> str:
    lines = [line for heredoc in step.heredocs for line in heredoc.body] or [step.text]
    return "\n".join(line for line in lines if not line.startswith("#"))


@cache
def text_of(path: Path) -> str:
    return rendered(path)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_the_seal_is_compared_after_each_plan_and_the_last_steps_are_the_checks_and_their_proof(path: Path) -> None:
    assert broken_promises(text_of(path)) == set()


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    return Path(shutil.copytree(render.TEMPLATES, tmp_path / "templates"))


def outcome(templates: Path, written: Manifest) -> tuple[str, str]:
    """The text that a manifest has with these templates, and what is refused of it."""
    try:
        return render.render(written, facts_of(written), templates), ""
    except (RenderError, TypeError) as error:  # the other is what jinja2 says of a macro called as none is
        return "", str(error)


def written_with_everything() -> list[Manifest]:
    """Every manifest, and one that patches what is compiled."""
    code, patch = "    device_code: [_C]\n", "    patches: [{path: images/patches/megatron/ipc.patch}]\n"
    return [*map(manifest.load, EVERY), changed(SPELLING, (code, code + patch))]


def seen(text: str) -> str:
    """A text without the digest of its templates, which every change of theirs changes."""
    return re.sub(r"templates=sha256:\w+", "", text)


@pytest.mark.parametrize(("name", "old", "new", "breaks"), EDITS)
def test_an_edit_that_weakens_a_guard_is_refused(templates: Path, name: str, old: str, new: str, breaks: str) -> None:
    file = templates / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    found = set[str]()
    for path in (REAL, SECOND):
        made, refused = outcome(templates, manifest.load(path))
        found |= broken_promises(made) if made else {rule.rpartition("(")[2] for rule in refused.split(")")}
    assert breaks in found


@pytest.mark.parametrize(
    "name", sorted(str(path.relative_to(render.TEMPLATES)) for path in render.TEMPLATES.rglob("*.j2"))
)
def test_no_line_of_a_template_can_go_unseen(templates: Path, name: str) -> None:
    file = templates / name
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    told = re.sub(r"\{#.*?#\}", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL).splitlines()
    whole = [(each, seen(render.render(each, facts_of(each)))) for each in written_with_everything()]
    unseen = []
    for at in (at for at, line in enumerate(told) if len(line.strip()) >= SHORTEST):
        file.write_text("".join([*lines[:at], *lines[at + 1 :]]), encoding="utf-8")
        if all(seen(outcome(templates, written)[0]) == text for written, text in whole):
            unseen.append(lines[at])
    assert unseen == []
