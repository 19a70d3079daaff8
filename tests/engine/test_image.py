"""`image` from the command line: its base from a real registry, its pins from the command."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import FACTS, MANIFEST, ROOT
from registries import pushed, registry
from test_bake import bake

from builder import facts, locking, made, manifest, matrix
from builder.build import Order
from builder.engine import Engine
from builder.errors import BaseFactsError, ImagesError, UnprovedError
from builder.report import Report

NAME = "rocm7.14"
TARGET = "gfx942"
TAG = f"{MANIFEST.tag([TARGET])}-dev"


@pytest.fixture(scope="module")
def project(
    engine: Engine, clean: tuple[Order, Report], _debian: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A copy of this project whose base is the stand-in, in a registry and not in the engine."""
    root = tmp_path_factory.mktemp("project")
    for folder in ("builder", "dockerfiles", "images", "templates", "standins"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    with registry(tmp_path_factory.mktemp("registry")) as host:
        digest = pushed(engine, clean[0].arguments["BASE_IMAGE"], host)
        for path in (root / "images" / f"{NAME}.yaml", FACTS.path):
            here = root / path.relative_to(ROOT if path == FACTS.path else root)
            text = here.read_text("utf-8")
            text = text.replace(MANIFEST.base.image, f"{host}/base:v1").replace(MANIFEST.base.digest, digest)
            here.write_text(text, "utf-8")
        yield root
        for reference in (TAG, f"{host}/base@{digest}"):
            with contextlib.suppress(Exception):
                engine.remove_image(reference)


def run(root: Path, engine: Engine, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root)}
    if engine.address.startswith("unix://"):
        environment["DOCKER_HOST"] = engine.address
    command = [sys.executable, "-m", "builder", *words]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def read(project: Path, engine: Engine) -> tuple[subprocess.CompletedProcess[str], ...]:
    """What `image` and `facts` said, one after the other, of a base whose facts are those of the real one."""
    assert run(project, engine, "render").returncode == 0
    return run(project, engine, "image", NAME, "--json"), run(project, engine, "facts", FACTS.path.stem)


def test_a_base_that_is_not_what_its_facts_say_stops_the_image_with_the_lines_to_write(
    read: tuple[subprocess.CompletedProcess[str], ...], engine: Engine
) -> None:
    said = read[0].stderr
    assert read[0].returncode == BaseFactsError.exit_code, said
    place = f"images/bases/{FACTS.path.stem}.yaml:{FACTS.where('system').line}:1"
    assert f"{place}: error: system is debian 13 in the base; its facts say ubuntu 24.04\n" in said
    assert "    hint: write it as system: debian 13\n" in said
    assert "error: the base does not set BUILD_ROCM_VERSION, CAUSAL_CONV1D_FORCE_BUILD" in said
    assert f"python -m builder facts {FACTS.path.stem}" in said
    events = [json.loads(line) for line in read[0].stdout.splitlines()]
    assert {event["state"] for event in events} == {"pull", "note", "error"}, "no step has run"
    assert engine.image_id(MANIFEST.tag(["gfx942"])) is None


def test_facts_then_writes_what_is_so_and_keeps_what_was_published(
    read: tuple[subprocess.CompletedProcess[str], ...], project: Path
) -> None:
    assert read[1].returncode == 0, read[1].stderr
    known = facts.load(project / "images/bases" / FACTS.path.name)
    assert (known.system, known.env_unknown, known.device_code) == ("debian 13", (), FACTS.device_code)
    assert known.sources["distributions"] == FACTS.sources["distributions"]
    assert known.sources["python"] == "the image itself"
    assert known.digest in (project / f"images/{NAME}.yaml").read_text()
    assert "-system: ubuntu 24.04\n+system: debian 13\n" in read[1].stdout


@pytest.mark.usefixtures("read")
def test_an_image_with_pins_of_the_command_is_built_on_the_pulled_base_and_says_whose_pins_it_has(
    project: Path, engine: Engine, clean: tuple[Order, Report]
) -> None:
    assert run(project, engine, "render").returncode == 0
    given = {
        f"{source.name}.commit": clean[0].arguments[source.commit_argument] for source in MANIFEST.sources.values()
    }
    settings = [word for pin, value in given.items() for word in ("--set", f"{pin}={value}")]
    done = run(project, engine, "image", NAME, "--json", *settings)
    assert done.returncode == 0, done.stderr[-3000:]
    *events, report = map(json.loads, done.stdout.splitlines())
    assert (report["tag"], report["pins"]) == (TAG, "overridden")
    assert given.items() <= report["arguments"].items()
    assert {event["state"] for event in events} & {"cached", "done"}
    assert engine.labels(TAG)["vime-image.pins"] == "overridden"
    assert engine.image_id(MANIFEST.tag(["gfx942"])) is None, "the tag of the manifest's own pins is not given"


# Images whose pins are their manifests'


@pytest.fixture(scope="module")
def pinned(
    project: Path, engine: Engine, clean: tuple[Order, Report], read: tuple[object, ...]
) -> Iterator[dict[str, Order]]:
    """The project with the stand-in's commits in its manifest, and a second image with another summary; by tag."""
    assert read
    path = project / f"images/{NAME}.yaml"
    for other in {*(project / "images").glob("*.yaml")} - {path}:
        other.unlink()
    for file in (path, *(project / "images/shared").glob("*.yaml")):
        text = file.read_text("utf-8")
        for source in MANIFEST.sources.values():
            text = text.replace(source.commit, clean[0].arguments[source.commit_argument])
        file.write_text(text, "utf-8")
    text = path.read_text("utf-8")
    (project / "images/second+1.yaml").write_text(text.replace("summary: ", "summary: second, "), "utf-8")
    assert run(project, engine, "render").returncode == 0
    written = [manifest.load(path) for path in sorted((project / "images").glob("*.yaml"))]
    every = matrix.orders((one, facts.of(one, project)) for one in written)
    orders = {order.tag: order for order in every if order.gpu_targets == (TARGET,)}
    yield orders
    for order in orders.values():
        for tag in (order.tag, order.fixed_tag or ""):
            with contextlib.suppress(Exception):
                engine.remove_image(tag)


@pytest.fixture(scope="module")
def all_built(project: Path, engine: Engine, pinned: dict[str, Order]) -> list[dict[str, Any]]:
    """What `image --all --json` printed, on an engine without the base that both images have."""
    engine.remove_image(next(iter(pinned.values())).manifest.base.reference)
    done = run(project, engine, "image", "--all", "--gpu-target", TARGET, "--jobs", "2", "--json")
    assert done.returncode == 0, done.stdout[-3000:]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {event.get("image") for event in events[:-1]} == set(pinned)
    return events


def test_all_images_are_built_and_each_has_both_its_tags(
    all_built: list[dict[str, Any]], pinned: dict[str, Order], engine: Engine
) -> None:
    summary = {entry["image"]: entry for entry in all_built[-1]["images"]}
    assert set(summary) == set(pinned) == {"vime:rocm7.14-gfx942", "vime:second_1-gfx942"}
    for tag, order in pinned.items():
        assert (summary[tag]["state"], summary[tag]["tags"]) == ("built", [tag, order.fixed_tag])
        assert engine.image_id(tag) == engine.image_id(order.fixed_tag or "")
    assert len({engine.image_id(tag) for tag in pinned}) == len(pinned)


def test_a_base_that_images_share_is_pulled_once(all_built: list[dict[str, Any]]) -> None:
    assert len({event["image"] for event in all_built if event.get("state") == "pull"}) == 1


@pytest.mark.usefixtures("all_built")
def test_its_labels_say_what_it_is_and_the_manifest_that_it_carries_has_the_digest_of_its_label(
    pinned: dict[str, Order], engine: Engine
) -> None:
    tag, order = next(iter(pinned.items()))
    labels = engine.labels(tag)
    assert labels["vime-image.pins"] == "as manifest"
    assert labels["org.opencontainers.image.base.name"] == order.manifest.base.image
    assert labels["org.opencontainers.image.base.digest"] == order.manifest.base.digest
    path = "/opt/vime-image/manifest.json"
    with engine.container(tag, ["sha256sum", path]) as container:
        assert container.wait() == 0
        assert container.output().split()[0] == labels["vime-image.manifest"].removeprefix("sha256:")


@pytest.mark.usefixtures("all_built")
def test_a_verified_image_locks_its_manifest_and_no_other_one(
    project: Path, pinned: dict[str, Order], engine: Engine
) -> None:
    path, tag = project / f"images/{NAME}.lock", next(iter(pinned))
    written, yaml = (project / MANIFEST.dockerfile).read_text("utf-8"), project / "images/shared/vime.yaml"
    text = yaml.read_text("utf-8")
    try:
        done = run(project, engine, "lock", NAME)
        assert done.returncode == 0, done.stderr
        versions = locking.of(made.read(engine, tag)).versions
        assert done.stdout == f"{len(versions)} distributions, as {tag} has them\n"
        assert [f"{name}=={versions[name]}" for name in sorted(versions)] == path.read_text("utf-8").splitlines()[2:]
        assert run(project, engine, "check", NAME).returncode == 0
        assert '"locked": {\n' in (project / MANIFEST.dockerfile).read_text("utf-8")
        yaml.write_text(text.replace("version: <26", "version: <25"), "utf-8")
        refused = run(project, engine, "lock", NAME)
        assert refused.returncode == UnprovedError.exit_code
        assert f"error: {tag} was made of other pins or requirements" in refused.stderr
        assert f"hint: rm images/{NAME}.lock && python -m builder image {NAME}\n" in refused.stderr
    finally:
        yaml.write_text(text, "utf-8")
        path.unlink(missing_ok=True)
        (project / MANIFEST.dockerfile).write_text(written, "utf-8")


@pytest.mark.usefixtures("all_built")
def test_bake_makes_the_same_images_from_the_shared_cache(
    project: Path, pinned: dict[str, Order], engine: Engine, tmp_path: Path
) -> None:
    made = {tag: engine.image_id(tag) for tag in pinned}
    file = tmp_path / "bake.json"
    file.write_text(run(project, engine, "matrix", "--format", "bake").stdout, "utf-8")
    for order in pinned.values():
        for tag in (order.tag, order.fixed_tag or ""):
            engine.remove_image(tag)
    bake(engine, file, *map(matrix.key, pinned.values()))
    assert {tag: engine.image_id(tag) for tag in pinned} == made


@pytest.mark.usefixtures("all_built")
def test_a_fixed_tag_stays_where_it_is_and_the_other_moves(
    project: Path, pinned: dict[str, Order], engine: Engine, tiny: str
) -> None:
    tag, order = next(iter(pinned.items()))
    made, other = engine.image_id(tag), engine.image_id(tiny) or ""
    for name in (tag, order.fixed_tag or ""):
        engine.tag(other, name)
    done = run(project, engine, "image", NAME, "--plain")
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{order.fixed_tag} stays with {other}" in done.stderr
    assert (engine.image_id(tag), engine.image_id(order.fixed_tag or "")) == (made, other)


def test_one_that_fails_leaves_the_others_alone_and_gets_no_tag(
    project: Path, pinned: dict[str, Order], engine: Engine
) -> None:
    path = project / "images/second+1.yaml"
    text = path.read_text("utf-8")
    broken = "  /nowhere:\n    reason: no step can make it one\n"
    path.write_text(text.replace("\nexecutables:\n", f"\nexecutables:\n{broken}", 1), "utf-8")
    for tag in pinned:
        with contextlib.suppress(Exception):
            engine.remove_image(tag)
    try:
        done = run(project, engine, "image", "--all", "--gpu-target", TARGET)
    finally:
        path.write_text(text, "utf-8")
    assert done.returncode == ImagesError.exit_code, done.stderr[-3000:]
    assert "error: 1 of 2 images were not built: vime:second_1-gfx942\n" in done.stderr
    lines = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert sorted(lines) == ["built", "failed"]
    assert [engine.image_id(tag) is None for tag in pinned] == [False, True]
