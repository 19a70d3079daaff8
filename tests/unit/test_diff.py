"""Manifests compared at revisions of git, with no engine; and how a difference is written."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from copies import Project, copied
from manifests import REAL, ROOT

from builder import errors, manifest
from builder.diff import Diff, Row, Section

NAME = REAL.stem
MANIFEST = manifest.load(REAL)
WITH_VIME = next(path for path in MANIFEST.files if MANIFEST.sources["vime"].commit in path.read_text("utf-8"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A checkout with one commit, and another pin since."""
    made = copied(tmp_path)
    who = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for words in (["init", "--quiet"], ["add", "images"], [*who, "commit", "--quiet", "--message", "first"]):
        subprocess.run(["git", *words], cwd=made.root, check=True, capture_output=True)
    made.edit(str(WITH_VIME.relative_to(ROOT)), MANIFEST.sources["vime"].commit, "1" * 40)
    return made


def test_a_manifest_is_compared_with_what_it_was_at_a_revision_without_an_engine(project: Project) -> None:
    done = project.run("diff", f"{NAME}@HEAD", NAME, "--format", "json")
    assert done.returncode == 0, done.stderr
    sections = {each["name"]: each for each in json.loads(done.stdout)["sections"]}
    assert sections["pins"]["rows"] == [{"key": "vime.commit", "a": MANIFEST.sources["vime"].commit, "b": "1" * 40}]
    assert (sections["env"]["rows"], sections["env"]["same"]) == ([], len(MANIFEST.env))
    assert sections["layers"]["unknown"] == f"{NAME}@HEAD is a manifest, and was not built"


@pytest.mark.parametrize(
    ("side", "said"),
    [
        (f"{NAME}@nowhere", "git knows no revision 'nowhere' here"),
        ("nothing@HEAD", "there is no images/nothing.yaml at HEAD"),
        ("rocm7.15", f"did you mean '{NAME}'?"),
    ],
)
def test_what_is_not_there_is_told_with_what_there_is(project: Project, side: str, said: str) -> None:
    assert said in project.refusal(errors.UsageError, "diff", side, NAME)


def test_a_side_that_lacks_something_has_a_dash_and_layers_have_megabytes() -> None:
    found = Diff(
        "x:1",
        "x:2",
        (
            Section("pins", (Row("vllm.tag", "v1", None),), 3, None),
            Section("layers", (Row("RUN a | b", 2_500_000, 5_000_000),), 0, None),
            Section("checks", (), 0, "x:1 has no result of its build's checks"),
        ),
    )
    assert found.table() == (
        "a = x:1\n"
        "b = x:2\n"
        "\npins: 1 differ, 3 are the same\n"
        "  vllm.tag  v1  -\n"
        "\nlayers: 1 differ, 0 are the same\n"
        "  RUN a | b  2.500 MB  5.000 MB\n"
        "\nchecks: unknown, x:1 has no result of its build's checks"
    )
    assert "| `vllm.tag` | `v1` | `-` |" in found.markdown()
    assert "| `RUN a \\| b` | `2.500 MB` | `5.000 MB` |" in found.markdown()
    assert json.loads(found.json())["sections"][0]["rows"] == [{"key": "vllm.tag", "a": "v1", "b": None}]
