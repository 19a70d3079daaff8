"""Commands that are killed while they work with an engine: files whole, nothing left in it, and the next run good."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import hollow
import pytest
import pythonic
from conftest import MANIFEST, ROOT
from kills import Command, Kills, timed
from registries import registry
from test_records import GOOD, STEP

from builder import build, client, lists, manifest, proof
from builder.build import Order
from builder.engine import CLIENT, OWNER, Engine
from builder.errors import VerificationError
from builder.lists import HOME
from builder.report import Report

NAME = "killed"  # a tag that no other test has
TAG = f"vime:{NAME}-gfx942"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of this project whose first image has another name."""
    place = tmp_path / "project"
    for folder in ("builder", "dockerfiles", "images", "standins", "templates"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (place / f"images/{MANIFEST.name}.yaml").rename(place / f"images/{NAME}.yaml")
    (place / f"dockerfiles/Dockerfile.{MANIFEST.name}").unlink()
    (ROOT / ".cache").mkdir(exist_ok=True)
    (place / ".cache").symlink_to(ROOT / ".cache")
    run(place, "render", NAME)
    return place


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "builder", *words]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)


@pytest.fixture
def left(engine: Engine, root: Path) -> Callable[[], object]:
    """What of commands is in the engine once another one has started: images and volumes; no containers."""

    def found() -> object:
        run(root, "engine")
        listed = engine.api.containers(all=True, filters={"label": OWNER})
        assert [each for each in listed if client.state(each["Labels"].get(CLIENT, "")) == "gone"] == []
        images = {(image["Id"], *sorted(image["RepoTags"] or ())) for image in engine.api.images()}
        return images, {volume["Name"] for volume in engine.api.volumes()["Volumes"] or ()}

    return found


def passed(root: Path, engine: Engine, tag: str) -> None:
    """Have an image count as verified."""
    proof.keep(root, hollow.report(engine.image_id(tag) or "", "passed"))


@pytest.fixture
def recorded(engine: Engine, root: Path) -> Iterator[str]:
    """An image with the records of one that was built of the manifest; its tag."""
    written = manifest.load(root / f"images/{NAME}.yaml")
    files = {**hollow.written(written), f"{HOME}/manifest.json": lists.text(lists.content(written))}
    files[f"{HOME}/policy.json"] = json.dumps(GOOD["policy.json"])
    assert f"{HOME}/plans/{STEP}.json" in files
    reference = hollow.base(engine, files, f"LABEL vime-image.image={NAME} vime-image.pins='as manifest'")
    engine.tag(reference, TAG)
    engine.remove_image(reference)
    passed(root, engine, TAG)
    yield TAG
    engine.remove_image(TAG)


@pytest.mark.usefixtures("recorded")
def test_a_lock_that_is_killed_leaves_files_whole_and_the_engine_clean(
    root: Path, killed: Kills, left: Callable[[], object]
) -> None:
    killed("lock", Command(words=("lock", NAME), root=root, folders=("dockerfiles", "images"), left=left))


def test_an_explain_that_is_killed_leaves_the_engine_clean(
    root: Path, killed: Kills, left: Callable[[], object], recorded: str
) -> None:
    """It writes nothing, and has a container that never starts."""
    killed("explain", Command(words=("explain", recorded), root=root, folders=("images",), left=left))


def test_facts_that_are_killed_leave_their_file_whole_and_the_engine_clean(
    engine: Engine, root: Path, killed: Kills, left: Callable[[], object], tmp_path: Path
) -> None:
    (tmp_path / "context").mkdir()
    image = pythonic.image(engine, tmp_path / "context")
    try:
        words = ("facts", "killed-base", "--image", image)
        killed("facts", Command(words=words, root=root, folders=("images/bases",), left=left))
    finally:
        engine.remove_image(image)


def test_a_verification_that_is_killed_leaves_files_whole_and_the_engine_clean(
    root: Path, killed: Kills, left: Callable[[], object], recorded: str
) -> None:
    """Of an image that fails it: the proof, and the report as JSON and as a page, are written all the same."""
    words, code = ("verify", recorded, "--report", "build/report.json"), VerificationError.exit_code
    killed("verify", Command(words=words, root=root, folders=("build",), code=code, read=timed, left=left))


def test_a_rehearsal_that_is_killed_leaves_files_whole_and_the_engine_clean(
    engine: Engine, clean: tuple[Order, Report], root: Path, killed: Kills, left: Callable[[], object]
) -> None:
    """All of its steps are in the engine's cache; the tag, the proof, the timings and both reports are written anew."""
    written = manifest.load(root / f"images/{NAME}.yaml")
    order = replace(clean[0], manifest=written, tag=f"{TAG}-rehearsal")
    build.make(engine, order, lambda _: None)
    words = ("rehearse", NAME, "--plain")
    try:
        killed("rehearse", Command(words=words, root=root, folders=("build",), read=timed, left=left))
    finally:
        engine.remove_image(f"{TAG}-rehearsal")


@pytest.fixture
def host(_debian: None, tmp_path: Path) -> Iterator[str]:
    with registry(tmp_path / "registry") as found:
        yield found


def noted(path: str, content: bytes) -> object:
    """A file that is the same each time, or a push's note of the name that it has given: whole, and gone in the end."""
    if not path.endswith("/pushing.json"):
        return content
    assert json.loads(content).keys() == {"name", "before"}
    return None


def test_a_push_that_is_killed_leaves_no_name_of_the_registry(
    root: Path, killed: Kills, left: Callable[[], object], recorded: str, host: str
) -> None:
    """The engine has the image under the registry's name only as long as it pushes."""
    words = ("push", recorded, host)
    killed("push", Command(words=words, root=root, folders=("build",), read=noted, left=left))
