"""Every argument of every command, wrong: told before an engine, a registry or the network is asked, with what is near."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from copies import copied
from manifests import REAL, ROOT

from builder import cli, connection, manifest
from builder.errors import EngineAbsentError, ManifestError, UnwritableError, UsageError

NAME = REAL.stem
TARGETS = f"known are {', '.join(manifest.load(REAL).gpu_targets)}"
NEAR = f"did you mean '{NAME}'?"
NO_IMAGE = "'a b' can name no image\n    hint: as vime:rocm7.14-gfx942"
NO_REPORT = "known are .json, .md, .txt, .xml"
# By command and argument: wrong words, and what is said of them.
WRONG: dict[tuple[str, str], list[tuple[list[str], str]]] = {
    ("bump", "words"): [
        (["bump", "rcom7.14", "vllm=v0.30.0"], NEAR),
        (["bump", NAME, "vlm=v0.30.0"], "no source 'vlm' in images/rocm7.14.yaml\n    hint: did you mean 'vllm'?"),
        (["bump", NAME, "vlm=v0.30.0", "base=v1"], "did you mean 'vllm'?"),
        (["bump", NAME, "vime=main", "vlm=v0.30.0"], "did you mean 'vllm'?"),
        (["bump", NAME, "vllm"], "a pin wants NAME=VALUE, not 'vllm'\n    hint: as in: vllm=v0.30.0"),
        (["bump", NAME, "base=a b"], "hint: write it as name:tag"),
        (["bump", NAME, "base=latest"], "hint: name a released tag"),
        (["bump", "--all-images", "vlm=v0.30.0"], "no image has vlm\n    hint: did you mean 'vllm'?"),
    ],
    ("bump", "file"): [(["bump", NAME, "vllm=v0.30.0", "--summary", "docs"], "cannot write docs: is a directory")],
    ("check", "images"): [(["check", "rcom7.14"], NEAR)],
    ("debug", "name"): [(["debug", "rcom7.14", "BUILD_VLLM"], NEAR)],
    ("debug", "step"): [(["debug", NAME, "BULD_VLLM"], "did you mean 'BUILD_VLLM'?")],
    ("debug", "targets"): [(["debug", NAME, "BUILD_VLLM", "--gpu-target", "gfx1"], TARGETS)],
    ("debug", "root_image"): [(["debug", NAME, "BUILD_VLLM", "--stand-in-from", "a b"], NO_IMAGE)],
    ("diff", "a"): [(["diff", "rcom7.14", NAME], NEAR), (["diff", "rcom7.14@HEAD", NAME], "git log --")],
    ("diff", "b"): [
        (["diff", "vime:rocm7.14-gfx942", "rcom7.14"], NEAR),
        (["diff", NAME, "a b:c"], "can name no image"),
    ],
    ("diff", "shape"): [(["diff", NAME, NAME, "--format", "yaml"], "'table'")],
    ("doctor", "images"): [(["doctor", "rcom7.14"], NEAR)],
    ("explain", "tag"): [(["explain", "a b"], NO_IMAGE), (["explain", ""], "can name no image")],
    ("facts", "base"): [
        (["facts", "primus-v26.5"], "did you mean 'primus-v26.4'?"),
        (["facts", "../x"], "hint: "),
    ],
    ("facts", "image"): [(["facts", "primus-v26.5", "--image", "a b"], "write it as name:tag")],
    ("image", "name"): [(["image", "rcom7.14"], NEAR)],
    ("image", "targets"): [
        (["image", NAME, "--gpu-target", "gfx1"], TARGETS),
        (
            ["image", "--all", "--gpu-target", "gfx942", "--gpu-target", "gfx1"],
            "no image to build for gfx1\n    hint: known",
        ),
    ],
    ("image", "refresh"): [(["image", NAME, "--refresh", "BULD_VLLM"], "did you mean 'BUILD_VLLM'?")],
    ("image", "jobs"): [(["image", "--all", "--jobs", "0"], "x>=1")],
    ("image", "cache_from"): [
        (["image", NAME, "--cache-from", "a b"], NO_IMAGE),
        (["image", "--all", "--cache-from", "team"], "'team' names no registry"),
    ],
    ("image", "time_limit"): [(["image", NAME, "--time-limit", "0"], "x>=1")],
    ("image", "settings"): [(["image", NAME, "--set", "vime.comit=x"], "did you mean 'vime.commit'?")],
    ("lock", "name"): [(["lock", "rcom7.14"], NEAR)],
    ("matrix", "changed_since"): [(["matrix", "--changed-since", "nowhere"], "git knows no revision 'nowhere'")],
    ("matrix", "form"): [(["matrix", "--format", "yaml"], "'bake'")],
    ("new", "name"): [
        (["new", "a b", "--base", "rocm/primus:v1"], "'a b' is no name of an image\n    hint: letters, digits"),
        (["new", "../x", "--base", "rocm/primus:v1"], "is no name of an image"),
        (["new", "x" * 300, "--base", "rocm/primus"], "has no tag"),
        (["new", NAME.upper(), "--base", "rocm/primus:v1"], f"there is an image '{NAME}' already"),
    ],
    ("new", "reference"): [(["new", "rocm9.9", "--base", "a b"], "write it as name:tag")],
    ("patches", "name"): [(["patches", "rcom7.14"], NEAR)],
    ("preflight", "name"): [(["preflight", "rcom7.14"], NEAR)],
    ("preflight", "file"): [(["preflight", NAME, "--report", "a.doc"], NO_REPORT)],
    ("probe", "image"): [(["probe", "a b"], NO_IMAGE)],
    ("probe", "file"): [(["probe", "a:b", "--report", "a.doc"], NO_REPORT)],
    ("push", "tag"): [(["push", "a b", "localhost:5000"], NO_IMAGE), (["push", "vime", "localhost:5000"], "is no tag")],
    ("push", "registry"): [(["push", "vime:x", "team"], "'team' names no registry")],
    ("rehearse", "name"): [(["rehearse", "rcom7.14"], NEAR)],
    ("rehearse", "targets"): [(["rehearse", NAME, "--gpu-target", "gfx1"], TARGETS)],
    ("rehearse", "refresh"): [(["rehearse", NAME, "--refresh", "BULD_VLLM"], "did you mean 'BUILD_VLLM'?")],
    ("rehearse", "root_image"): [(["rehearse", NAME, "--stand-in-from", "a b"], NO_IMAGE)],
    ("rehearse", "index"): [(["rehearse", NAME, "--index", "reel"], "'stand-in'")],
    ("render", "images"): [(["render", "rcom7.14"], NEAR)],
    ("run", "tag"): [(["run", "a b"], NO_IMAGE)],
    ("run", "mounts"): [
        (["run", "a:b", "--mount", "vime"], "--mount wants NAME=VALUE, not 'vime'\n    hint: as in: --mount vime=."),
        (["run", "a:b", "--mount", "vime=nowhere"], "no folder 'nowhere'\n    hint: make it first"),
    ],
    ("sbom", "tag"): [(["sbom", "a b"], NO_IMAGE)],
    ("verify", "tag"): [(["verify", "a b"], NO_IMAGE)],
    ("verify", "file"): [(["verify", "a:b", "--report", "a.doc"], NO_REPORT)],
}
FREE = {  # what only a container can tell to be wrong
    *(("debug", "command"), ("run", "command")),
    ("probe", "python"),
}


def test_every_argument_of_every_command_is_tried() -> None:
    valued = {
        (name, str(parameter.name))
        for name, command in cli.main.commands.items()
        for parameter in command.params
        if not (isinstance(parameter, click.Option) and parameter.is_flag)
    }
    assert valued == WRONG.keys() | FREE


@pytest.mark.parametrize(
    ("words", "said"),
    [case for cases in WRONG.values() for case in cases],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_wrong_value_is_told_before_anybody_is_asked(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    done = CliRunner().invoke(cli.main, words, standalone_mode=False)
    assert isinstance(done.exception, UsageError | ManifestError | UnwritableError | click.UsageError)
    shown = done.exception.format_message() if isinstance(done.exception, click.UsageError) else str(done.exception)
    assert said in shown
    assert "hint: " in shown or isinstance(done.exception, click.UsageError)
    assert done.stdout == ""


def test_what_is_wrong_leaves_no_lock_behind(tmp_path: Path) -> None:
    project = copied(tmp_path)
    for words in (["rcom7.14", "vllm=v1"], [NAME, "vlm=v1"], [NAME, "base=latest"], ["--all-images", "vlm=v1"]):
        project.refusal(UsageError, "bump", *words)
    assert not (project.root / "build").exists()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("DOCKER_HOST", "tcp://127.0.0.1:x", "tcp://127.0.0.1:x is no address of an engine: Port could not be cast"),
        ("DOCKER_HOST", "nowhere", "no container engine at nowhere: Invalid bind address format"),
        ("DOCKER_CONTEXT", "nowhere", "docker has no context 'nowhere'\n    hint: docker context ls"),
    ],
)
def test_an_engine_that_is_named_wrong_is_told_and_no_other_one_is_taken(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    with pytest.raises(EngineAbsentError) as refused:
        connection.connect()
    assert said in str(refused.value)
    assert "    hint: " in str(refused.value)
