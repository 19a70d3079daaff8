"""Another base from a real registry on loopback: pinned by its digest, if its facts are known, or refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from manifests import write
from origins import World
from registries import free_port, registry
from test_preflight import packages, world

from builder import buildkit, manifest
from builder.engine import Engine
from builder.errors import (
    BaseImageError,
    DriftError,
    DriftUnaskedError,
    EngineAbsentError,
    PreflightError,
    RegistryError,
    UsageError,
)
from builder.trace import Event

__all__ = ["packages", "world"]  # fixtures of another file
ROOT = Path(__file__).parents[2]
NAME = "rocm7.14"
MANIFEST = manifest.load(ROOT / "images" / f"{NAME}.yaml")
FACTS = f"images/bases/{MANIFEST.base.facts}.yaml"


def quiet(_: Event) -> None:
    """Watch nothing."""


def pushed(engine: Engine, image: str, name: str) -> str:
    """The digest of an image that its registry has under `name` from now on."""
    repository, _, tag = name.rpartition(":")
    engine.api.tag(image, repository, tag)
    lines = [json.loads(line) for chunk in engine.api.push(repository, tag, stream=True) for line in chunk.splitlines()]
    assert not [line for line in lines if "error" in line], lines
    engine.remove_image(name)
    return str(next(line["aux"]["Digest"] for line in lines if "Digest" in line.get("aux", {})))


@pytest.fixture(scope="module")
def host(
    engine: Engine, tiny: str, _debian: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, str]]]:
    """A registry with `base:v1` and `base:v2`, and their digests."""
    with registry(tmp_path_factory.mktemp("registry")) as where:
        other = buildkit.build(engine, f"FROM {tiny}\nRUN echo 2 > /2\n", arguments={}, watch=quiet, network="none")
        images = {"v1": tiny, "v2": other.image_id}
        yield where, {tag: pushed(engine, image, f"{where}/base:{tag}") for tag, image in images.items()}


@pytest.fixture
def project(world: World, host: tuple[str, dict[str, str]], tmp_path: Path) -> Path:
    """A copy of this project that pins the world, on the base v1 of that registry."""
    root = tmp_path / "copy"
    for folder in ("builder", "dockerfiles", "images", "templates"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for other in {*(root / "images").glob("*.yaml")} - {root / f"images/{NAME}.yaml"}:
        other.unlink()  # its sources and its base are not here
    write(world.manifest(), root)
    for path in (root / f"images/{NAME}.yaml", root / FACTS):
        text = path.read_text().replace(MANIFEST.base.image, f"{host[0]}/base:v1")
        path.write_text(text.replace(MANIFEST.base.digest, host[1]["v1"]))
    assert command(root, "render", NAME).returncode == 0
    return root


def command(root: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root)} | variables
    words = [sys.executable, "-m", "builder", *arguments]
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def files(root: Path) -> dict[str, bytes]:
    paths = [*root.glob("images/*.yaml"), *root.glob("dockerfiles/*")]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def test_a_base_without_facts_is_refused_with_the_command_that_reads_them(
    host: tuple[str, dict[str, str]], project: Path
) -> None:
    before = files(project)
    done = command(project, "bump", NAME, "base=v2")
    assert done.returncode == PreflightError.exit_code, done.stderr
    where, digests = host
    assert f"base.image: {where}/base:v1 -> {where}/base:v2" in done.stderr
    assert f"base.digest: {digests['v1']} -> {digests['v2']}" in done.stderr
    assert f"is of {where}/base:v1@{digests['v1']}, the base is {where}/base:v2@{digests['v2']}" in done.stderr
    assert f"python -m builder facts base-v2 --image {where}/base:v2@{digests['v2']}" in done.stderr
    assert "error: nothing is written" in done.stderr
    assert files(project) == before
    done = command(project, "bump", NAME, "base=v2", "--keep-going")
    assert done.returncode == PreflightError.exit_code
    assert files(project)[f"images/{NAME}.yaml"] == before[f"images/{NAME}.yaml"].replace(
        digests["v1"].encode(), digests["v2"].encode()
    ).replace(b"base:v1\n  digest", b"base:v2\n  digest")


def test_a_base_with_facts_is_pinned_together_with_them(host: tuple[str, dict[str, str]], project: Path) -> None:
    where, digests = host
    text = (project / FACTS).read_text().replace(f"{where}/base:v1", f"{where}/base:v2")
    (project / "images/bases/second.yaml").write_text(text.replace(digests["v1"], digests["v2"]))
    done = command(project, "bump", NAME, "base=v2", "--summary", "summary.md")
    assert done.returncode == 0, done.stderr
    after = manifest.load(project / f"images/{NAME}.yaml")
    assert after.base.reference == f"{where}/base:v2@{digests['v2']}"
    assert after.base.facts == "second"
    assert command(project, "check", NAME).returncode == 0
    summary = (project / "summary.md").read_text()
    assert f"| base.digest | `{digests['v1']}` | `{digests['v2']}` |" in summary
    assert "* SEAL_BASE" in summary


def test_an_unknown_digest_is_written_by_a_bump_of_the_same_tag(
    host: tuple[str, dict[str, str]], project: Path
) -> None:
    path = project / f"images/{NAME}.yaml"
    right = path.read_text()
    path.write_text(right.replace(host[1]["v1"], "unknown"))
    done = command(project, "bump", NAME, "base=v1")
    assert done.returncode == 0, done.stderr
    assert path.read_text() == right


@pytest.mark.parametrize(
    ("tag", "kind", "said"),
    [
        ("v9", BaseImageError, "cannot have {host}/base:v9: manifest unknown"),
        ("latest", UsageError, "tag 'latest' of the image moves"),
        ("v 2", UsageError, "is no reference"),
    ],
)
def test_a_tag_that_is_not_there_is_refused_and_writes_nothing(
    host: tuple[str, dict[str, str]], project: Path, tag: str, kind: type[BaseImageError], said: str
) -> None:
    before = files(project)
    done = command(project, "bump", NAME, f"base={tag}")
    assert done.returncode == kind.exit_code
    assert said.format(host=host[0]) in done.stderr
    assert files(project) == before


def test_where_no_registry_can_be_asked_nothing_is_written(host: tuple[str, dict[str, str]], project: Path) -> None:
    before = files(project)
    done = command(project, "bump", NAME, "base=v2", "--offline")
    assert done.returncode == UsageError.exit_code
    assert "asks a registry, and --offline is given" in done.stderr
    done = command(project, "bump", NAME, "base=v2", DOCKER_HOST="unix:///nowhere.sock")
    assert done.returncode == EngineAbsentError.exit_code
    assert files(project) == before
    nowhere = f"127.0.0.1:{free_port()}"
    for path in (project / f"images/{NAME}.yaml", project / FACTS):
        path.write_text(path.read_text().replace(host[0], nowhere))
    before = files(project)
    done = command(project, "bump", NAME, "base=v2")
    assert done.returncode == RegistryError.exit_code
    assert "the registry was not reached" in done.stderr
    assert files(project) == before


def test_a_base_whose_tag_has_moved_is_drift(
    engine: Engine, tiny: str, host: tuple[str, dict[str, str]], project: Path
) -> None:
    assert command(project, "bump", "--check-drift").returncode == 0
    where, digests = host
    other = buildkit.build(engine, f"FROM {tiny}\nRUN echo 3 > /3\n", arguments={}, watch=quiet, network="none")
    now = pushed(engine, other.image_id, f"{where}/base:v1")
    try:
        done = command(project, "bump", NAME, "--check-drift")
        assert done.returncode == DriftError.exit_code
        assert f"{where}/base:v1 is {now} today, base.digest is {digests['v1']}" in done.stdout
        assert f"python -m builder bump {NAME} base=v1" in done.stdout
        done = command(project, "bump", NAME, "base=v1")
        assert done.returncode == PreflightError.exit_code
        assert f"{FACTS}:4:1: error: base.facts: primus-v26.4 is of {where}/base:v1@{digests['v1']}" in done.stderr
        assert f"python -m builder facts primus-v26.4 --image {where}/base:v1@{now}" in done.stderr
    finally:
        assert pushed(engine, tiny, f"{where}/base:v1") == digests["v1"]


def test_drift_of_a_base_that_nobody_can_ask_for_could_not_run(host: tuple[str, dict[str, str]], project: Path) -> None:
    done = command(project, "bump", "--check-drift", DOCKER_HOST="unix:///nowhere.sock")
    assert (done.returncode, "no engine to ask" in done.stdout) == (DriftUnaskedError.exit_code, True)
    nowhere = f"127.0.0.1:{free_port()}"
    for path in (project / f"images/{NAME}.yaml", project / FACTS):
        path.write_text(path.read_text().replace(host[0], nowhere))
    done = command(project, "bump", "--check-drift")
    assert (done.returncode, f"cannot have {nowhere}/base:v1" in done.stdout) == (DriftUnaskedError.exit_code, True)
