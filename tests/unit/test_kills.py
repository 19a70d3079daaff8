"""Commands that are killed while they write, without an engine; those with one are in tests/engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from copies import Project, copied
from kills import Command, Kills, timed
from manifests import IMAGES, REAL
from origins import MANIFEST, World
from test_bump import command as run
from test_bump import project as pinned
from test_preflight import packages, world

from builder.errors import PreflightError
from builder.lock import Lock

__all__ = ["packages", "pinned", "world"]  # fixtures of other files
NAME = REAL.stem
NOWHERE = {"DOCKER_HOST": "unix:///nowhere.sock"}
WRITTEN = ("dockerfiles", "images")


@pytest.fixture
def one(tmp_path: Path) -> Project:
    """A copy of the project with one image, whose Dockerfile is stale."""
    project = copied(tmp_path)
    for other in set(IMAGES) - {REAL}:
        (project.root / "images" / other.name).unlink()
        (project.root / "dockerfiles" / f"Dockerfile.{other.stem}").unlink()
    project.edit(f"images/{NAME}.yaml", "summary: vLLM", "summary: today vLLM")
    return project


@pytest.mark.parametrize(
    "words", [("render", NAME), ("new", "rocm7.99", "--base", MANIFEST.base.reference)], ids=" ".join
)
def test_a_writer_that_is_killed_leaves_every_file_old_or_new(
    one: Project, killed: Kills, words: tuple[str, ...]
) -> None:
    once = words[0] == "new"
    killed(words[0], Command(words=words, root=one.root, folders=WRITTEN, once=once, environment=NOWHERE))


@pytest.mark.parametrize("cached", [True, False], ids=["from the cache", "that fetches"])
def test_a_bump_that_is_killed_can_be_repeated(world: World, pinned: Path, killed: Kills, cached: bool) -> None:  # noqa: FBT001
    """It writes a manifest and a Dockerfile, and removes the lock of the pins before."""
    world.repositories["vllm"].commit({"CHANGES": "x\n"}, tag="v0.29.1")
    (pinned / MANIFEST.lock_file).write_text(Lock(world.manifest().resolution, {"transformers": "5.12.0"}).text(NAME))
    assert run(pinned, "render", NAME).returncode == 0
    anew = () if cached else (".cache/git",)
    words = ("bump", NAME, "vllm=v0.29.1")
    name = f"bump, {'all' if cached else 'nothing'} in the cache"
    killed(name, Command(words=words, root=pinned, folders=WRITTEN, anew=anew, environment=NOWHERE))


def test_a_bump_that_is_refused_has_changed_nothing_whenever_it_is_killed(
    world: World, pinned: Path, killed: Kills
) -> None:
    world.repositories["vllm"].commit({"vllm/engine/arg_utils.py": ""}, tag="v0.30.0")
    words, code = ("bump", NAME, "vllm=v0.30.0"), PreflightError.exit_code
    command = Command(words=words, root=pinned, folders=WRITTEN, code=code, environment=NOWHERE)
    before = command.files()
    killed("bump, refused", command)
    assert command.files() == before


@pytest.mark.usefixtures("world")
def test_a_preflight_that_is_killed_leaves_a_cache_that_the_next_one_can_use(pinned: Path, killed: Kills) -> None:
    words = ("preflight", NAME, "--report", "build/report.json")
    command = Command(words=words, root=pinned, folders=("build",), anew=(".cache",), environment=NOWHERE, read=timed)
    killed("preflight, nothing in the cache", command)
    shutil.rmtree(pinned / ".cache")
