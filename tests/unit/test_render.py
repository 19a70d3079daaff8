"""The generated file: what its reader may count on, whatever the manifest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manifests import EVERY, GOOD, IMAGES, REAL, ROOT, SECOND, changed, facts_of, rendered

from builder import dockerfile, manifest, probing, render
from builder.errors import RenderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.dockerfile import Instruction
    from builder.manifest import Manifest

LONGEST_RECIPE = 300
# docs/decisions/004-how-long-the-file-may-be.md explains it.
LONGEST_FILE = 2_850
COMPUTED = ("BASE_DIGEST", "OVERRIDDEN", "PINS")  # arguments that others are taken apart with
# Some are brought to an image, and stand in none.
BROUGHT = {"base.py", *probing.PROGRAMS}
PROGRAMS = sorted({path.name for path in (ROOT / "builder/inside").glob("[a-z]*.py")} - BROUGHT)
SPELLING = ROOT / "tests/manifests/good/spelling.yaml"

every_manifest = pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
bounded = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@cache
def text_of(path: Path) -> str:
    return rendered(path)


@cache
def steps_of(path: Path) -> tuple[Instruction, ...]:
    return dockerfile.parse(text_of(path))


def written_as(instruction: Instruction) -> tuple[object, ...]:
    """What the builder sees of an instruction: everything but its place."""
    bodies = tuple((heredoc.delimiter, heredoc.body) for heredoc in instruction.heredocs)
    return instruction.keyword, instruction.text, bodies


def render_changed(path: Path, *edits: tuple[str, str]) -> str:
    written = changed(path, *edits)
    return render.render(written, facts_of(written))


def names_of(path: Path) -> list[str]:
    return [step.name for step in steps_of(path)]


# What a reviewer sees


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_renders_as_recorded(path: Path, golden: Callable[[str, str], None]) -> None:
    """The recipe; the programs that it embeds are held by a test of their own."""
    text = text_of(path)
    for name in PROGRAMS:
        program = (ROOT / "builder/inside" / name).read_text(encoding="utf-8")
        text = text.replace(program, f"(builder/inside/{name})\n")
    golden(f"Dockerfile.{path.stem}", text)


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_the_committed_dockerfile_is_fresh(path: Path) -> None:
    committed = (ROOT / f"dockerfiles/Dockerfile.{path.stem}").read_bytes()
    assert committed == text_of(path).encode(), f"stale: python -m builder render {path.stem}"


def test_no_dockerfile_is_committed_without_its_manifest() -> None:
    committed = {path.name for path in (ROOT / "dockerfiles").iterdir()}
    assert committed == {f"Dockerfile.{path.stem}" for path in IMAGES}


@every_manifest
def test_the_first_line_says_where_the_file_comes_from(path: Path) -> None:
    wanted = f"# Made from images/{path.stem}.yaml by `make render`; do not edit."
    assert text_of(path).splitlines()[0] == wanted


@every_manifest
def test_no_word_is_about_rehearsal(path: Path) -> None:
    assert re.findall(r"rehears|stand-?in", text_of(path), re.IGNORECASE) == []


@every_manifest
def test_the_recipe_can_be_read_in_one_go(path: Path) -> None:
    copied = sum(len(heredoc.body) for step in steps_of(path) if step.keyword == "COPY" for heredoc in step.heredocs)
    lines = len(text_of(path).splitlines())
    assert lines - copied <= LONGEST_RECIPE
    assert lines - len(manifest.load(path).locked) <= LONGEST_FILE


# The same bytes, always


@every_manifest
def test_the_same_manifest_gives_the_same_bytes(path: Path) -> None:
    assert rendered(path) == rendered(path)


@pytest.mark.parametrize(("seed", "locale"), [("1", "C"), ("4711", "C.UTF-8")])
def test_neither_hash_seed_nor_locale_changes_a_byte(seed: str, locale: str) -> None:
    code = (
        "import hashlib, manifests\n"
        "for path in manifests.EVERY: print(hashlib.sha256(manifests.rendered(path).encode()).hexdigest())"
    )
    environment = os.environ | {
        "PYTHONHASHSEED": seed,
        "LC_ALL": locale,
        "TZ": "Asia/Tokyo",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}",
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [hashlib.sha256(text_of(path).encode()).hexdigest() for path in EVERY]


# Steps and arguments


@every_manifest
def test_every_script_is_quoted_and_its_name_is_the_step(path: Path) -> None:
    scripts = [step for step in steps_of(path) if step.keyword == "RUN" and step.heredocs]
    assert scripts
    for step in scripts:
        assert len(step.heredocs) == 1
        assert re.fullmatch(rf"(--mount=\S+ )*<<'{step.name}'", step.text)
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", step.name)


@every_manifest
def test_a_step_tells_the_guards_its_own_name(path: Path) -> None:
    told = []
    for step in steps_of(path):
        for heredoc in step.heredocs if step.keyword == "RUN" else ():
            body = "\n".join(heredoc.body)
            told += [
                (step.name, name) for name in re.findall(r"(?:seal\.py (?:check|add)|judge\.py install) (\S+)", body)
            ]
    assert told
    assert [pair for pair in told if pair[0] != pair[1]] == []


@every_manifest
def test_pins_are_build_arguments_and_nothing_else_is(path: Path) -> None:
    written = manifest.load(path)
    pins = {source.commit_argument: source.commit for source in written.fetched}
    pins |= {f"{name.upper()}_WHEEL": wheel.reference for name, wheel in written.prebuilt.items()}
    pins |= {"BASE_IMAGE": written.base.reference, "GPU_TARGETS": written.gpu_targets[0]}
    arguments = [step.text.partition("=") for step in steps_of(path) if step.keyword == "ARG"]
    given = {name: value for name, _, value in arguments if value}
    computed = {name: given.pop(name) for name in COMPUTED}
    assert given == pins
    assert computed["PINS"] == "${OVERRIDDEN:+overridden}"
    assert {name for name, _, value in arguments if not value} == {"BASE_IMAGE"}  # FROM ends the first one's scope


@every_manifest
def test_pins_are_overridden_only_while_one_differs(path: Path) -> None:
    """The expansion, evaluated by a shell of the same rules."""
    arguments = _arguments(path)
    pins = {name: value for name, value in arguments.items() if name not in {*COMPUTED, "GPU_TARGETS"}}

    def overridden(**other: str) -> str:
        script = f'printf %s "{arguments["OVERRIDDEN"]}"'
        done = subprocess.run(["bash", "-euc", script], env=pins | other, capture_output=True, text=True, check=True)
        return done.stdout

    assert overridden() == ""
    for name in pins:
        assert overridden(**{name: "0" * 40}) == "0" * 40


def _arguments(path: Path) -> dict[str, str]:
    pairs = (step.text.partition("=") for step in steps_of(path) if step.keyword == "ARG")
    return {name: value for name, _, value in pairs if value}


@every_manifest
def test_what_compiles_stands_above_what_changes_often(path: Path) -> None:
    names = names_of(path)
    compiled = [names.index(source.step("BUILD")) for source in manifest.load(path).installed_by("wheel")]
    often = [names.index(name) for name in ("JUDGE_PY", "POLICY_JSON", "IMPORTS_PY", "CHECK_PY", "CHECKS_JSON")]
    assert often == sorted(often)
    assert max(compiled, default=0) < often[0]


@pytest.mark.parametrize("path", [REAL, SPELLING], ids=lambda path: path.stem)
def test_another_reason_or_comment_changes_no_instruction_that_runs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"(reason: )[^\"'\n},]+", r"\1another reason", text)
    text = re.sub(r"^# .*$", "# Another comment.\n#\n", text, flags=re.MULTILINE)
    text = re.sub(r"^summary: .*$", "summary: another summary", text, flags=re.MULTILINE)
    written = manifest.parse(text.encode(), path)
    other = render.render(written, facts_of(written))
    assert other != text_of(path)
    after = dockerfile.parse(other)
    first = names_of(path).index("JUDGE_PY")
    assert [*map(written_as, after[:first])] == [*map(written_as, steps_of(path)[:first])]
    runs = [[written_as(step) for step in steps if step.keyword == "RUN"] for steps in (after, steps_of(path))]
    assert runs[0] == runs[1]


def test_another_commit_of_vime_leaves_everything_above_it_alone() -> None:
    commit = manifest.load(REAL).sources["vime"].commit
    after = dockerfile.parse(render_changed(REAL, (commit, "1" * 40)))
    first = next(i for i, step in enumerate(after) if step.text.startswith("VIME_COMMIT="))
    same = [
        (a, b) for a, b in zip(after[:first], steps_of(REAL)[:first], strict=True) if written_as(a) != written_as(b)
    ]
    assert same == []
    assert after[first].text == f"VIME_COMMIT={'1' * 40}"


@every_manifest
def test_two_targets_of_an_image_that_are_compiled_at_once_have_a_log_each(path: Path) -> None:
    logs = [line for step in steps_of(path) for body in step.heredocs for line in body.body if line.startswith("log=")]
    assert len(logs) == len(manifest.load(path).installed_by("wheel"))
    for line in logs:
        told = [subprocess.check_output(["bash", "-c", f'GPU_TARGETS="{x}"; {line}; echo $log']) for x in ("a", "b;c")]
        assert told[0] != told[1]
        assert b";" not in told[1]


@every_manifest
def test_the_entry_point_is_the_manifest_s_own_whatever_the_base_has(path: Path) -> None:
    last = steps_of(path)[-1]
    assert (last.keyword, json.loads(last.text)) == ("ENTRYPOINT", list(manifest.load(path).entrypoint))
    assert [step for step in steps_of(path) if step.keyword == "CMD"] == []  # ENTRYPOINT resets the base's


def test_what_the_base_ships_is_sealed_from_the_start_and_never_fetched() -> None:
    seal = steps_of(SECOND)[names_of(SECOND).index("SEAL_BASE")]
    assert "    vllm" in seal.heredocs[0].body
    assert [name for name in names_of(SECOND) if name.endswith("_VLLM")] == []


def test_a_wheel_whose_hash_is_unknown_is_given_to_a_pip_that_wants_one() -> None:
    step = steps_of(SECOND)[names_of(SECOND).index("INSTALL_APEX")]
    (line,) = [line for line in step.heredocs[0].body if "pip install" in line]
    assert {"--require-hashes", "--no-deps", '"$APEX_WHEEL"'} <= set(line.split())
    assert "#sha256=" not in _arguments(SECOND)["APEX_WHEEL"]


def test_what_only_one_source_needs_to_be_built_is_set_in_its_step_alone() -> None:
    steps = {step.name: step for step in steps_of(SECOND)}
    assert "export NVTE_FUSED_ATTN=0" in steps["BUILD_TRANSFORMER_ENGINE"].heredocs[0].body
    assert "export NVTE_FUSED_ATTN=0" not in steps["BUILD_TORCH_MEMORY_SAVER"].heredocs[0].body


# What is embedded


@every_manifest
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_embedded_byte_for_byte(path: Path, name: str) -> None:
    step = next(step for step in steps_of(path) if step.keyword == "COPY" and step.text.endswith(f"/bin/{name}"))
    body = "".join(f"{line}\n" for line in step.heredocs[0].body)
    assert body.encode() == (ROOT / "builder/inside" / name).read_bytes()


def test_a_local_patch_stands_byte_for_byte_above_the_step_that_applies_it() -> None:
    names = names_of(SPELLING)
    step = steps_of(SPELLING)[names.index("PATCH_MEGATRON_1")]
    target = "/opt/vime-image/patches/megatron/ipc.patch"
    assert step.text.endswith(f" {target}")
    body = "".join(f"{line}\n" for line in step.heredocs[0].body)
    assert body == (ROOT / "tests/manifests/images/patches/megatron/ipc.patch").read_text(encoding="utf-8")
    fetch = names.index("FETCH_MEGATRON")
    assert names.index("PATCH_MEGATRON_1") < fetch
    assert any(f"--patch {target}" in line for line in steps_of(SPELLING)[fetch].heredocs[0].body)


def project(tmp_path: Path, patch: bytes) -> Manifest:
    """The manifest with a local patch, in a project where that patch has other bytes."""
    shutil.copytree(ROOT / "tests/manifests/good", tmp_path / "good")
    place = tmp_path / "images/patches/megatron/ipc.patch"
    place.parent.mkdir(parents=True)
    place.write_bytes(patch)
    return manifest.load(tmp_path / "good/spelling.yaml")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (b"--- a\n+++ b", "PATCH_MEGATRON_1: a heredoc always ends with a newline"),
        (b"", "PATCH_MEGATRON_1: a heredoc always ends with a newline"),
        (b"--- a\nPATCH_MEGATRON_1\n+++ b\n", "PATCH_MEGATRON_1: a line of the text is the heredoc's delimiter"),
        (b"--- a\r\n+++ b\r\n", "has lines that end in CR LF"),
        (b"--- a\x0c\n+++ b\n", "control character"),
        (b"+" + b"x" * 65_535 + b"\n", "line of 65536 bytes"),
        (b"\xff\n", "patch images/patches/megatron/ipc.patch cannot be read"),
    ],
    ids=["open end", "empty", "delimiter", "carriage return", "form feed", "long line", "no text"],
)
def test_a_patch_that_would_not_arrive_whole_is_refused(tmp_path: Path, patch: bytes, message: str) -> None:
    written = project(tmp_path, patch)
    with pytest.raises(RenderError) as caught:
        render.render(written, facts_of(written))
    assert message in str(caught.value)


def test_a_patch_that_is_not_there_is_named(tmp_path: Path) -> None:
    written = project(tmp_path, b"")
    (tmp_path / "images/patches/megatron/ipc.patch").unlink()
    with pytest.raises(RenderError, match=r"patch images/patches/megatron/ipc\.patch cannot be read"):
        render.render(written, facts_of(written))


def test_a_patch_that_is_a_link_to_a_file_of_this_machine_is_refused(tmp_path: Path) -> None:
    written = project(tmp_path / "project", b"")
    (tmp_path / "secret").write_text("+ secret\n")
    patch = tmp_path / "project/images/patches/megatron/ipc.patch"
    patch.unlink()
    patch.symlink_to(tmp_path / "secret")
    with pytest.raises(RenderError, match="leads out of the project"):
        render.render(written, facts_of(written))


@pytest.mark.parametrize("right", [True, False])
def test_a_patch_with_a_digest_is_held_to_it(tmp_path: Path, *, right: bool) -> None:
    written = project(tmp_path, b"--- a\n+++ b\n")
    digest = hashlib.sha256(b"--- a\n+++ b\n" if right else b"").hexdigest()
    local = "path: images/patches/megatron/ipc.patch\n"
    written = changed(written.path, (local, f"{local}        sha256: {digest}\n"))
    if right:
        assert "PATCH_MEGATRON_1" in render.render(written, facts_of(written))
        return
    with pytest.raises(
        RenderError, match=rf"patch images/patches/megatron/ipc\.patch has the SHA-256 \w+, not {digest}"
    ):
        render.render(written, facts_of(written))


# Templates


@pytest.mark.parametrize(
    ("template", "old", "new"),
    [
        ("verification.j2", "image.workdir", "image.wrokdir"),
        ("verification.j2", "image.workdir", "wrokdir"),
        ("sources/wheel.j2", "source.public_version", "source.publik_version"),
        ("macros.j2", "source.repository", "source.reposit"),
        ("environment.j2", "| env_value", "| env_valeu"),
        ("environment.j2", "{% endif %}", "{% endfi %}"),
    ],
)
def test_a_misspelt_template_fails_at_its_line(tmp_path: Path, template: str, old: str, new: str) -> None:
    templates = tmp_path / "templates"
    shutil.copytree(render.TEMPLATES, templates)
    path = templates / template
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    line = text[: text.index(old)].count("\n") + 1
    written = manifest.load(REAL)
    with pytest.raises(RenderError) as caught:
        render.render(written, facts_of(written), templates)
    (problem,) = caught.value.problems
    assert problem.where is not None
    assert (problem.where.path, problem.where.line) == (path, line)


@every_manifest
def test_no_pin_stands_in_a_template(path: Path) -> None:
    written = manifest.load(path)
    pins = {written.base.digest} | {source.commit for source in written.sources.values()}
    pins |= {source.tag for source in written.sources.values() if source.tag}
    pins |= {tool.version for tool in written.build_tools.values()}
    templates = "".join(template.read_text(encoding="utf-8") for template in render.TEMPLATES.rglob("*.j2"))
    assert [pin for pin in pins - {"unknown"} if pin in templates] == []


def test_a_template_that_breaks_a_rule_fails_to_render(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    shutil.copytree(render.TEMPLATES, templates)
    skeleton = templates / "Dockerfile.j2"
    skeleton.write_text(skeleton.read_text(encoding="utf-8") + "RUN pip install torch\n", encoding="utf-8")
    written = manifest.load(REAL)
    with pytest.raises(RenderError, match="pip install outside the guard"):
        render.render(written, facts_of(written), templates)


def test_editable_sources_alone_render() -> None:
    text = SPELLING.parent.joinpath("small.yaml").read_text(encoding="utf-8")
    text = text.replace("recipe: wheel", "recipe: editable")
    written = manifest.parse(text.encode(), ROOT / "images/x.yaml")
    names = [step.name for step in dockerfile.parse(render.render(written, facts_of(written)))]
    assert "BUILD_VLLM" not in names
    assert names.index("JUDGE_PY") < names.index("FETCH_VLLM") < names.index("INSTALL_VLLM") < names.index("VERIFY")


# Values are data


def docker_value(word: str) -> str:
    """What BuildKit makes of a double-quoted word: a backslash takes the meaning of quote, dollar and backslash."""
    assert len(word) >= 2
    assert word[0] == word[-1] == '"'
    value, rest = "", word[1:-1]
    while rest:
        if rest[0] == "\\" and rest[1:2] in {'"', "$", "\\"}:
            value, rest = value + rest[1], rest[2:]
            continue
        assert rest[0] not in {'"', "$"}, f"{rest[0]!r} keeps its meaning in {word}"
        value, rest = value + rest[0], rest[1:]
    return value


@bounded
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_every_value_of_a_variable_arrives_as_it_stands(value: str) -> None:
    word = render._env_value(value)  # noqa: SLF001 - the promise is the filter's
    assert docker_value(word) == value
    assert not re.search(r"\\\s*$", word), "the line would go on"


@bounded
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_every_word_of_a_script_arrives_as_it_stands(value: str) -> None:
    quote = render._environment(render.TEMPLATES).filters["shell"]  # noqa: SLF001 - the promise is the filter's
    assert shlex.split(quote(value)) == [value]


@bounded
@given(st.text(st.characters(exclude_categories=["Cs"])), st.from_regex(r"[A-Z]{1,3}", fullmatch=True))
def test_a_heredoc_is_exact_or_refused(text: str, delimiter: str) -> None:
    try:
        body = render._heredoc_body(text, delimiter)  # noqa: SLF001 - the promise is the filter's
    except RenderError:
        assert not text.endswith("\n") or delimiter in text.split("\n")
        return
    (step,) = dockerfile.parse(f"COPY <<'{delimiter}' /x\n{body}\n{delimiter}\n")
    assert "".join(f"{line}\n" for line in step.heredocs[0].body) == text


def test_quotes_dollars_and_backslashes_of_a_manifest_arrive_as_they_stand() -> None:
    given = dict(step.text.split("=", 1) for step in steps_of(SPELLING) if step.keyword == "ENV")
    wanted = {name: variable.value for name, variable in manifest.load(SPELLING).env.items()}
    assert {name: docker_value(word) for name, word in given.items() if name != "GPU_ARCHS"} == wanted
    assert wanted["QUOTES"] == 'it\'s "$HOME" \\ # %'


def test_a_dropped_variable_is_kept_where_its_value_is_another() -> None:
    step = next(step for step in steps_of(SPELLING) if step.name == "DROPPED_ENV_PTH")
    (line,) = step.heredocs[0].body
    show = f"{line}\nprint(os.environ.get('NVTE_FUSED_ATTN'))"
    for value, wanted in [(facts_of(manifest.load(SPELLING)).env["NVTE_FUSED_ATTN"], "None"), ("1", "1")]:
        command, environment = [sys.executable, "-c", show], os.environ | {"NVTE_FUSED_ATTN": value}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == wanted
