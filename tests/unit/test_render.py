"""The generated file: what it promises, for every manifest of the project."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder import dockerfile, facts, manifest, render
from builder.errors import RenderError

ROOT = Path(__file__).parents[2]
LONGEST_RECIPE, LONGEST_FILE = 300, 1_600  # docs/decisions/004-how-long-the-file-may-be.md
MANIFESTS = sorted((ROOT / "images").glob("*.yaml"))

every_manifest = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)


def rendered(path: Path, edit: Callable[[str], str] = str) -> str:
    text = edit(path.read_text())
    found = manifest.parse(text.encode(), path)
    return render.render(found, facts.of(found, ROOT))


def steps(text: str) -> dict[str, dockerfile.Instruction]:
    return {i.name: i for i in dockerfile.parse(text) if i.keyword in {"RUN", "COPY"}}


@every_manifest
def test_the_committed_file_is_what_its_manifest_renders_to(path: Path) -> None:
    committed = (ROOT / f"dockerfiles/Dockerfile.{path.stem}").read_text()
    assert committed == rendered(path), f"python -m builder render {path.stem}"


@every_manifest
def test_another_process_renders_the_same_bytes(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from builder import facts, manifest, render;"
        f"m = manifest.load(Path({str(path)!r})); sys.stdout.buffer.write(render.render(m, facts.of(m, Path({str(ROOT)!r}))).encode())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert done.stdout == rendered(path).encode()


@every_manifest
def test_the_file_has_no_word_about_rehearsal(path: Path) -> None:
    assert re.findall(r"(?i)rehears|stand-?in", rendered(path)) == []


@every_manifest
def test_the_recipe_and_the_file_can_be_read_at_one_sitting(path: Path) -> None:
    text = rendered(path)
    embedded = sum(len(h.body) for i in dockerfile.parse(text) if i.keyword == "COPY" for h in i.heredocs)
    assert len(text.splitlines()) - embedded <= LONGEST_RECIPE
    assert len(text.splitlines()) <= LONGEST_FILE


@every_manifest
def test_each_program_stands_in_the_file_byte_for_byte(path: Path) -> None:
    embedded = {
        i.text.rpartition("/")[2]: i.heredocs[0].body for i in steps(rendered(path)).values() if i.keyword == "COPY"
    }
    programs = {name: body for name, body in embedded.items() if name.endswith(".py")}
    assert set(programs) == {"check.py", "imports.py", "judge.py", "seal.py", "source.py"}
    for name, body in programs.items():
        assert "\n".join(body) + "\n" == (render.PROGRAMS / name).read_text()


@every_manifest
def test_pins_are_build_arguments_and_nothing_else_is(path: Path) -> None:
    text = rendered(path)
    names = {i.text.partition("=")[0] for i in dockerfile.parse(text) if i.keyword == "ARG"}
    commits = {source.commit_argument for source in manifest.load(path).sources.values()}
    assert names == {"BASE_IMAGE", "GPU_TARGETS", *commits, "OVERRIDDEN", "PINS"}  # the last two are computed


@every_manifest
def test_nothing_stands_above_the_first_compile_but_what_it_needs(path: Path) -> None:
    names = list(steps(rendered(path)))
    first = next(name for name in names if name.startswith("BUILD_") and name != "BUILD_TOOLS")
    assert {"JUDGE_PY", "POLICY_JSON", "CHECK_PY", "IMPORTS_PY", "CHECKS_JSON"} <= set(names[names.index(first) :])


@every_manifest
def test_no_version_of_anything_stands_in_a_template(path: Path) -> None:
    found = manifest.load(path)
    versions = {source.tag for source in found.sources.values() if source.tag}
    versions |= {tool.version for tool in found.build_tools.values()} | {
        source.commit for source in found.sources.values()
    }
    templates = "".join(template.read_text() for template in render.TEMPLATES.rglob("*.j2"))
    assert [version for version in versions if version in templates] == []


@every_manifest
def test_a_reason_and_a_comment_rebuild_no_compile(path: Path) -> None:
    """BuildKit's cache key of a step is its text: whatever is above the judge must not hold prose."""

    def reworded(text: str) -> str:
        return "# another comment\n" + re.sub(r"(?m)^(\s+reason: ).*$", r"\1because", text)

    def above(text: str) -> list[tuple[str, tuple[dockerfile.Heredoc, ...]]]:
        found = [(i.text, i.heredocs) for i in steps(text).values()]
        names = list(steps(text))
        return found[: names.index("JUDGE_PY")]

    def bodies(text: str) -> list[tuple[str, list[tuple[str, ...]]]]:
        return [(text, [heredoc.body for heredoc in heredocs]) for text, heredocs in above(text)]

    assert bodies(rendered(path)) == bodies(rendered(path, reworded))


@every_manifest
def test_hadolint_finds_nothing(path: Path) -> None:
    program = Path(sys.executable).parent / "hadolint"
    command = [
        str(program),
        "--config",
        str(ROOT / ".hadolint.yaml"),
        str(ROOT / f"dockerfiles/Dockerfile.{path.stem}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


# One manifest is enough for what follows

PATH = MANIFESTS[0]


def test_a_name_that_a_template_does_not_find_is_an_error_with_its_line(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    shutil.copytree(render.TEMPLATES, templates)
    with (templates / "judge.j2").open("a") as file:
        file.write("{{ image.sumary }}\n")
    found = manifest.load(PATH)
    with pytest.raises(RenderError) as caught:
        render.render(found, facts.of(found, ROOT), templates)
    lines = (templates / "judge.j2").read_text().count("\n")
    assert f"{templates}/judge.j2:{lines}:1: error: " in str(caught.value)
    assert "sumary" in str(caught.value)


def test_a_template_that_breaks_a_rule_fails_with_the_rule_s_name(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    shutil.copytree(render.TEMPLATES, templates)
    with (templates / "judge.j2").open("a") as file:
        file.write("RUN pip install torch\n")
    found = manifest.load(PATH)
    with pytest.raises(RenderError, match="every_pip_install_is_guarded"):
        render.render(found, facts.of(found, ROOT), templates)


def test_a_local_patch_stands_in_the_file_before_the_step_that_applies_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "images", project / "images")
    patch = project / "images/patches/vime/mask.patch"
    patch.parent.mkdir(parents=True)
    patch.write_text("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-$HOME \\ `a`\n+two\n")
    path = project / "images" / PATH.name
    line = "    modules: [vime, vime_plugins]\n"
    assert line in path.read_text()
    path.write_text(
        path.read_text().replace(line, f"{line}    patches:\n      - path: images/patches/vime/mask.patch\n")
    )
    found = manifest.load(path)
    text = render.render(found, facts.of(found, project))
    names = list(steps(text))
    copy = steps(text)["PATCH_VIME_1"]
    assert "\n".join(copy.heredocs[0].body) + "\n" == patch.read_text()
    assert names.index("PATCH_VIME_1") + 1 == names.index("FETCH_VIME")
    assert f"--patch {copy.text.split()[-1]}" in "\n".join(steps(text)["FETCH_VIME"].heredocs[0].body)


@pytest.mark.parametrize(("text", "reason"), [("one\nEND\ntwo\n", "is the heredoc's delimiter"), ("one", "does not")])
def test_a_text_that_a_heredoc_cannot_hold_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RenderError, match=reason):
        render._heredoc_body(text, "END")  # noqa: SLF001 - the filter has no other door


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_a_quoted_word_is_one_word_to_the_shell(value: str) -> None:
    assert shlex.split(shlex.quote(value)) == [value]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_a_quoted_value_of_env_expands_nothing(value: str) -> None:
    quoted = render._env_value(value)  # noqa: SLF001 - the filter has no other door
    assert quoted.startswith('"')
    assert quoted.endswith('"')
    assert re.sub(r'\\([\\"$])', r"\1", quoted[1:-1]) == value
    assert re.search(r'(?<!\\)(\\\\)*["$]', quoted[1:-1]) is None


def test_a_dropped_variable_goes_only_while_it_has_the_base_s_value() -> None:
    line = render._dropping({"NVTE_FLASH_ATTN": "0"})  # noqa: SLF001 - the line is what it is about
    program = line + "import os; print(os.environ.get('NVTE_FLASH_ATTN'))"
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"NVTE_FLASH_ATTN": value},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for value in ("0", "1")
    ]
    assert found == ["None", "1"]
