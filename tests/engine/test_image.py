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

import pytest
from conftest import FACTS, MANIFEST, ROOT
from registries import pushed, registry

from builder import facts
from builder.build import Order
from builder.engine import Engine
from builder.errors import BaseFactsError
from builder.report import Report

NAME = "rocm7.14"
TAG = f"{MANIFEST.tag(['gfx942'])}-dev"


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
