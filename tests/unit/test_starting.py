"""A new image begins with a manifest that holds, but for what nobody has looked up yet."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from manifests import ROOT
from test_bump import command

from builder import manifest
from builder.errors import ManifestError, UsageError

KNOWN = {"rocm/primus:v26.4": "wheel", "vllm/vllm-openai-rocm:v0.29.0": "shipped"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("builder", "dockerfiles", "images", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("base", KNOWN)
def test_on_a_base_that_is_known_it_renders_and_checks(project: Path, base: str) -> None:
    done = command(project, "new", "rocm9.9", "--base", base)
    assert done.returncode == 0, done.stderr
    written = manifest.load(project / "images/rocm9.9.yaml")
    assert (written.base.image, written.sources["vllm"].recipe) == (base, KNOWN[base])
    assert [problem.message for problem in manifest.unknowns(written)] == ["sources.vllm.commit is unknown"]
    for words in (("render", "rocm9.9"), ("check", "rocm9.9")):
        done = command(project, *words)
        assert done.returncode == 0, done.stderr


def test_on_a_base_that_nobody_knows_its_facts_come_first(project: Path) -> None:
    done = command(project, "new", "rocm9.9", "--base", "rocm/primus:v26.9")
    assert done.returncode == 0, done.stderr
    assert "its digest stays unknown: no container engine" in done.stderr
    assert done.stdout.splitlines()[0].strip() == ("python -m builder facts primus-v26.9 --image rocm/primus:v26.9")
    assert manifest.load(project / "images/rocm9.9.yaml").base.digest == "unknown"
    assert command(project, "check", "rocm9.9").returncode == ManifestError.exit_code


def test_the_document_names_every_command_that_comes_next(project: Path) -> None:
    text = (ROOT / "docs/new-image.md").read_text(encoding="utf-8")
    done = command(project, "new", "rocm9.9", "--base", "rocm/primus:v26.9")
    named = [line.split()[3] for line in done.stdout.splitlines() if "python -m builder" in line]
    assert named == ["facts", "render", "check", "preflight", "rehearse"]
    assert [name for name in ["new", *named] if f"python -m builder {name} " not in text] == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("rocm7.2", "--base", "rocm/primus:v26.4"), UsageError.exit_code, "there is an image 'rocm7.2' already"),
        (("rocm_9", "--base", "rocm/primus:v26.4"), UsageError.exit_code, "'rocm_9' is no name of an image"),
        (("rocm9.9", "--base", "rocm/primus"), UsageError.exit_code, "has no tag"),
        (("rocm9.9", "--base", "rocm/primus:latest"), UsageError.exit_code, "'latest' of the image moves"),
        (("rocm9.9", "--base", "rocm/primus:v1@sha256:1"), UsageError.exit_code, "is no digest"),
    ],
)
def test_what_can_be_no_image_is_refused_and_nothing_is_written(
    project: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    before = sorted(project.rglob("*.yaml"))
    done = command(project, "new", *words)
    assert done.returncode == code
    assert message in done.stderr
    assert sorted(project.rglob("*.yaml")) == before
