"""The front door, as a user meets it: another process, its words and its exit code."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from copies import Project, copied
from manifests import IMAGES, REAL, ROOT

from builder import cli, errors, manifest
from builder.project import known_images

NAME = REAL.stem
DOCKERFILE = f"dockerfiles/Dockerfile.{NAME}"
NEW_SUMMARY = ("summary: vLLM", "summary: today vLLM")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return copied(tmp_path)


# check


def test_a_good_project_is_one_line_for_each_image_and_what_is_unknown_below_it(project: Project) -> None:
    done = project.run("check")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert [line.partition(",")[0] for line in lines] == [f"{path.stem}: ok" for path in IMAGES]
    unknown = [line for line in done.stdout.splitlines() if line.endswith(" is unknown")]
    assert sum(int(line.split()[-2]) for line in lines if line.endswith("unknown")) == len(unknown)


def test_it_works_from_another_working_directory(project: Project, tmp_path: Path) -> None:
    done = project.run("check", NAME, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{NAME}: ok\n")
    project.edit(f"images/{NAME}.yaml", "recipe: wheel", "recipe: weel")
    done = project.run("check", NAME, cwd=tmp_path)
    assert done.returncode == errors.ManifestError.exit_code
    assert done.stderr.startswith(f"project/images/{NAME}.yaml:"), "the place is one to click on from here"


def test_a_stale_dockerfile_comes_with_the_command_that_renews_it(project: Project) -> None:
    project.edit(f"images/{NAME}.yaml", *NEW_SUMMARY)
    hint = f"python -m builder render {NAME}"
    assert project.refusal(errors.StaleError, "check", NAME) == f"error: {DOCKERFILE} is stale\n    hint: {hint}\n"
    assert project.run(*shlex.split(hint)[3:]).returncode == 0
    assert project.run("check", NAME).returncode == 0


def test_a_line_end_alone_makes_a_dockerfile_stale(project: Project) -> None:
    file = project.root / DOCKERFILE
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n", 1))
    assert f"{DOCKERFILE} is stale" in project.refusal(errors.StaleError, "check", NAME)


def test_a_missing_dockerfile_is_called_missing(project: Project) -> None:
    (project.root / DOCKERFILE).unlink()
    told = project.refusal(errors.StaleError, "check", NAME)
    assert told == f"error: {DOCKERFILE} is missing\n    hint: python -m builder render {NAME}\n"


def test_a_fault_of_a_manifest_has_its_place_and_its_hint(project: Project) -> None:
    project.edit(f"images/{NAME}.yaml", "recipe: wheel", "recipe: weel")
    told = project.refusal(errors.ManifestError, "check", NAME)
    assert told.startswith(f"images/{NAME}.yaml:")
    assert told.endswith("error: 'weel' is not 'wheel', 'editable' or 'shipped'\n    hint: did you mean 'wheel'?\n")


@pytest.mark.parametrize(
    "content",
    [b"", b"- a\n- b\n", b"summary: [\n", b"\xff\xfe", b"a: &x [*x]\n"],
    ids=["empty", "list", "open", "no text", "anchor"],
)
def test_whatever_stands_in_a_manifest_is_a_fault_of_the_manifest(project: Project, content: bytes) -> None:
    (project.root / f"images/{NAME}.yaml").write_bytes(content)
    assert f"images/{NAME}.yaml:" in project.refusal(errors.ManifestError, "check", NAME)


def test_missing_facts_are_a_fault_of_the_manifest(project: Project) -> None:
    project.edit(f"images/{NAME}.yaml", "facts: primus-v26.4", "facts: primus-v26.5")
    told = project.refusal(errors.ManifestError, "check", NAME)
    assert "no file 'images/bases/primus-v26.5.yaml'" in told
    assert "did you mean 'primus-v26.4'?" in told


def test_every_image_is_checked_though_one_has_failed(project: Project) -> None:
    text = REAL.read_text(encoding="utf-8")
    (project.root / "images/another.yaml").write_text(text.replace("recipe: wheel", "recipe: weel"), encoding="utf-8")
    (project.root / "images/last.yaml").write_text(text, encoding="utf-8")
    done = project.run("check")
    assert done.returncode == errors.ManifestError.exit_code
    assert f"{NAME}: ok" in done.stdout
    assert "images/another.yaml:" in done.stderr
    assert "dockerfiles/Dockerfile.last is missing" in done.stderr


def test_two_images_that_would_have_the_same_tags_are_refused(project: Project) -> None:
    other = project.root / f"images/{NAME.upper()}.yaml"
    shutil.copy(project.root / f"images/{NAME}.yaml", other)
    told = project.refusal(errors.ManifestError, "check", NAME)
    assert told == (
        f"images/{NAME}.yaml:1:1: error: '{NAME}' and '{NAME.upper()}' would have the same tags, vime:{NAME}-...\n"
        "    hint: rename one of them\n"
    )


def test_what_nobody_has_established_is_listed_and_is_no_fault(project: Project) -> None:
    commit = manifest.load(REAL).sources["vllm"].commit
    project.edit(f"images/{NAME}.yaml", commit, "unknown")
    assert project.run("render", NAME).returncode == 0
    done = project.run("check", NAME)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{NAME}: ok, 1 unknown\n")
    assert "sources.vllm.commit is unknown" in done.stdout
    assert "sources.vllm.commit is unknown" in project.run("image", NAME).stderr


# render


def test_render_writes_what_check_wants_and_says_where(project: Project) -> None:
    shutil.rmtree(project.root / "dockerfiles")
    done = project.run("render")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"dockerfiles/Dockerfile.{path.stem}" for path in IMAGES]
    assert (project.root / DOCKERFILE).read_bytes() == (ROOT / DOCKERFILE).read_bytes()
    assert sorted(path.name for path in (project.root / "dockerfiles").iterdir()) == [
        f"Dockerfile.{path.stem}" for path in IMAGES
    ]


def test_render_check_writes_nothing(project: Project) -> None:
    assert project.run("render", "--check").returncode == 0
    project.edit(f"images/{NAME}.yaml", *NEW_SUMMARY)
    before = (project.root / DOCKERFILE).read_bytes()
    assert f"{DOCKERFILE} is stale" in project.refusal(errors.StaleError, "render", "--check")
    assert (project.root / DOCKERFILE).read_bytes() == before


def test_render_needs_no_docker_sdk(project: Project) -> None:
    program = "import sys; sys.modules['docker'] = None; from builder.cli import main; main(['render'])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project.root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fault_of_a_template_has_its_place(project: Project) -> None:
    project.edit("templates/verification.j2", "image.workdir", "image.wrokdir")
    told = project.refusal(errors.RenderError, "render", NAME)
    assert "templates/verification.j2:" in told
    assert "wrokdir" in told


# What is not there


@pytest.mark.parametrize("command", ["check", "render", "rehearse", "image"])
def test_an_unknown_image_names_the_near_one(project: Project, command: str) -> None:
    told = project.refusal(errors.UsageError, command, NAME.replace("rocm", "rcom"))
    assert told == f"error: no image '{NAME.replace('rocm', 'rcom')}'\n    hint: did you mean '{NAME}'?\n"


def test_a_version_that_differs_by_a_trailing_zero_is_another_image(project: Project) -> None:
    assert f"no image '{NAME}0'" in project.refusal(errors.UsageError, "check", f"{NAME}0")


def test_an_unknown_image_that_is_near_to_none_names_the_known(project: Project) -> None:
    assert f"hint: known are {NAME}" in project.refusal(errors.UsageError, "check", "xyz")


@pytest.mark.parametrize("name", ["../images/rocm7.14", "bases/primus-v26.4", "images/rocm7.14.yaml", ""])
def test_an_image_is_named_not_its_file(project: Project, name: str) -> None:
    assert f"error: no image {name!r}" in project.refusal(errors.UsageError, "check", name)


@pytest.mark.parametrize("command", ["rehearse", "image"])
def test_an_unknown_gpu_target_names_the_known_before_any_engine_is_asked(project: Project, command: str) -> None:
    told = project.refusal(errors.UsageError, command, NAME, "--gpu-target", "gfx942", "--gpu-target", "gfx90a")
    known = ", ".join(manifest.load(REAL).gpu_targets)
    assert f"no GPU target 'gfx90a' in this image\n    hint: known are {known}\n" in told
    assert told.startswith(f"images/{NAME}.yaml:")


@pytest.mark.parametrize(
    "command", [["rehearse", NAME], ["image", NAME], ["image", "--all"], ["verify", "x:y"], ["engine"]], ids=" ".join
)
def test_without_an_engine_the_hint_is_how_to_start_one(project: Project, command: list[str]) -> None:
    told = project.refusal(errors.EngineAbsentError, *command)
    assert told.count("error: ") == 1
    assert "no container engine at unix://" in told
    assert "hint: for a private one: scripts/engine start && export DOCKER_HOST=$(cat .engine/host)" in told


@pytest.mark.parametrize("arguments", [["nonsense"], ["check", "--nonsense"], ["verify"]])
def test_a_wrong_command_line_says_where_the_help_is(project: Project, arguments: list[str]) -> None:
    assert "--help' for help" in project.refusal(errors.UsageError, *arguments)


# Several images


@pytest.mark.parametrize(
    "words",
    [
        [],
        [NAME, "--all"],
        ["--all", "--set", "vime.commit=x"],
        ["--all", "--refresh", "VERIFY"],
        ["--all", "--no-cache"],
        [NAME, "--no-cache", "--cache-from", "localhost:5000/vime:x"],
        [NAME, "--jobs", "2"],
        [NAME, "--fail-fast"],
        ["--all", "--jobs", "0"],
    ],
    ids=" ".join,
)
def test_what_is_for_one_image_is_not_for_all_and_the_other_way_round(project: Project, words: list[str]) -> None:
    assert "Usage: " in project.refusal(errors.UsageError, "image", *words)


def test_all_images_take_their_steps_from_a_registry_and_not_from_one_image(project: Project) -> None:
    for place in ("localhost:5000/vime:x", "team"):
        told = project.refusal(errors.UsageError, "image", "--all", "--cache-from", place)
        assert f"error: {place!r} names no registry\n    hint: a host, and a folder if there is one" in told


def test_a_time_that_is_none_is_refused_before_any_engine_is_asked(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    told = project.refusal(errors.UsageError, "rehearse", NAME)
    assert told.startswith("error: SOURCE_DATE_EPOCH is 'yesterday', not seconds since 1970\n")


def test_a_gpu_target_that_no_image_has_is_refused_before_any_engine_is_asked(project: Project) -> None:
    told = project.refusal(errors.UsageError, "image", "--all", "--gpu-target", "gfx1")
    assert "error: there is no image to build for gfx1\n" in told


# Other pins, for one build


@pytest.mark.parametrize(
    ("words", "option"), [(["image", "--set", "a.b=1", "--set"], "--set"), (["bump", "a.b=1"], "a pin")]
)
def test_a_name_that_is_given_twice_is_refused_with_both_values(
    project: Project, words: list[str], option: str
) -> None:
    done = project.run(words[0], "rocm7.14", *words[1:], "a.b=2")
    assert done.returncode == errors.UsageError.exit_code
    assert done.stderr == f"error: {option} gives a.b twice: '1' and '2'\n    hint: keep one\n"


@pytest.mark.parametrize(
    ("setting", "kind", "message"),
    [
        (
            "vime.comit=x",
            errors.UsageError,
            "no pin 'vime.comit' in images/rocm7.14.yaml\n    hint: did you mean 'vime.commit'?",
        ),
        ("vime.tag=v1", errors.UsageError, "no pin 'vime.tag'"),
        ("vime.commit", errors.UsageError, "--set wants NAME=VALUE, not 'vime.commit'"),
        ("vime.commit=main", errors.ManifestError, "images/shared/vime.yaml:"),
        ("vllm.commit=main", errors.ManifestError, "images/rocm7.14.yaml:"),
        ("vime.repository=file:///etc", errors.ManifestError, "images/shared/vime.yaml:"),
    ],
)
def test_a_pin_that_is_none_is_refused_before_any_engine_is_asked(
    project: Project, setting: str, kind: type[errors.BuilderError], message: str
) -> None:
    before = (project.root / f"images/{NAME}.yaml").read_bytes()
    assert message in project.refusal(kind, "image", NAME, "--set", setting)
    assert (project.root / f"images/{NAME}.yaml").read_bytes() == before


def test_a_wrong_step_to_look_at_is_refused_before_any_engine_is_asked(project: Project) -> None:
    assert "did you mean 'BUILD_VLLM'?" in project.refusal(errors.UsageError, "debug", NAME, "BULD_VLLM")


# Help


@pytest.mark.parametrize("name", ["", *sorted(cli.main.commands)])
def test_every_help_has_an_example_that_its_command_accepts(name: str) -> None:
    command = cli.main.commands[name] if name else cli.main
    done = CliRunner().invoke(cli.main, [name, "--help"] if name else ["--help"])
    assert done.exit_code == 0
    (example,) = [line for line in done.output.splitlines() if line.strip().startswith("Example: ")]
    python, _, package, *words = shlex.split(example.partition(": ")[2])
    assert (python, package) == ("python", "builder")
    assert not name or words[0] == name
    command = cli.main.commands[words[0]]
    assert isinstance(command.make_context(words[0], words[1:]), click.Context)


def test_every_example_names_an_image_that_is_there() -> None:
    helps = " ".join(command.help or "" for name, command in cli.main.commands.items() if name != "new")
    assert set(known_images()) == {path.stem for path in IMAGES}
    named = {word for word in helps.split() if word.startswith("rocm") and word[4:5].isdigit()}
    assert named <= set(known_images())


def test_every_kind_of_failure_has_an_exit_code_of_its_own() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BuilderError)]
    codes = [kind.exit_code for kind in kinds]
    assert len(codes) == len(set(codes))


# -q and -v

NEW = ("new", "rocm9.9", "--base", f"rocm/nothing:v1@sha256:{'a' * 64}")


def test_quiet_leaves_data_and_errors_before_the_command_and_after_it(project: Project) -> None:
    usual = project.run(*NEW)
    written = project.root / "images" / "rocm9.9.yaml"
    assert (usual.returncode, "written: " in usual.stderr) == (0, True)
    for words in (("-q", *NEW), (*NEW, "--quiet")):
        written.unlink()
        done = project.run(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, usual.stdout, "")
    assert "there is an image 'rocm9.9' already" in project.refusal(errors.UsageError, *NEW, "-q")


def test_verbose_tells_what_is_asked_with_seconds_and_what_led_to_an_error(project: Project) -> None:
    done = project.run("preflight", NAME, "--offline", "--verbose")
    assert re.search(r"^git .*rev-parse --verify .* \(\d+\.\d\d s\)$", done.stderr, re.MULTILINE)
    assert "rev-parse" not in project.run("preflight", NAME, "--offline").stderr
    command = [sys.executable, "-m", "builder", "-v", "engine"]
    environment = os.environ | {"DOCKER_HOST": "unix:///nowhere.sock"}
    told = subprocess.run(
        command, cwd=project.root, env=environment, capture_output=True, text=True, check=False
    ).stderr
    assert told.index("Traceback") < told.index("FileNotFoundError") < told.index("\nerror: no container engine")


def test_every_command_is_quiet_and_verbose_and_talks_by_one_way() -> None:
    for command in (cli.main, *cli.main.commands.values()):
        assert {"-q", "--quiet", "-v", "--verbose"} <= {name for each in command.params for name in each.opts}
    for path in (ROOT / "builder").glob("*.py"):
        assert path.stem in {"cli", "front"} or not re.search(r"err=True|sys\.stderr[,)]", path.read_text()), path
