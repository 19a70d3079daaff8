"""A base read in a container of it: the stand-in, whose facts are known, and one that has nothing to tell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from catches import Catches, Row

from builder import buildkit, facts, manifest, reading, standin
from builder.engine import Engine
from builder.errors import BaseFactsError, ManifestError
from builder.facts import Facts
from builder.trace import Event

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
FACTS = facts.of(MANIFEST, ROOT)
NAME = MANIFEST.name


def quiet(_: Event) -> None:
    """Watch nothing."""


@pytest.fixture(scope="module")
def base(engine: Engine) -> str:
    return standin.make(engine, MANIFEST, FACTS, standin.Ingredients(cache=ROOT / ".cache"), quiet).reference


@pytest.fixture(scope="module")
def found(engine: Engine, base: str) -> Facts:
    reading_ = reading.read(engine, base, python=FACTS.python.executable)
    assert reading_.remarks == ()
    return reading_.facts


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for folder in ("builder", "dockerfiles", "images", "templates"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def command(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root)}
    words = [sys.executable, "-m", "builder", *arguments]
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def changed(engine: Engine, base: str) -> Iterator[Callable[[str, str], str]]:
    """The stand-in with more lines in its Dockerfile, under a tag."""
    made: list[str] = []

    def make(tag: str, lines: str) -> str:
        reference = f"vime-images-test/{engine.owner}:v{tag}"
        built = buildkit.build(engine, f"FROM {base}\n{lines}\n", arguments={}, watch=quiet, network="none")
        engine.tag(built.image_id, reference)
        made.append(reference)
        return reference

    yield make
    for reference in made:
        engine.remove_image(reference)


def test_the_stand_in_says_what_it_was_made_of(found: Facts) -> None:
    extra = {name: version for name, version in found.distributions.items() if name not in FACTS.distributions}
    assert {name: found.distributions[name] for name in FACTS.distributions} == dict(FACTS.distributions)
    assert set(extra) == {"pip", "pyjwt"}  # what venv brings, and the system's copy
    assert {name: found.env[name] for name in FACTS.env} == dict(FACTS.env)
    assert found.digest == "unknown"
    assert found.python.executable == FACTS.python.executable
    assert found.rocm_root == FACTS.rocm_root
    assert found.device_code == FACTS.device_code
    assert found.flavours == {"torch": "rocm"}
    assert found.requirements is not None
    assert found.requirements["rocm"] == ("rocm-sdk-core==7.14.0a20260608", "rocm-sdk-devel==7.14.0a20260608")
    assert found.pip_check == ("mamba-ssm 2.3.1 requires tilelang, which is not installed.",)
    assert found.entrypoint == ()
    assert found.tools is not None
    assert {"bash", "git", "ccache", "g++", "patch", "python3"} <= set(found.tools)
    assert "cargo" not in found.tools


def test_a_stand_in_is_told_from_the_real_base_by_three_facts_alone(found: Facts) -> None:
    keys = {".".join(each.key) for each in reading.differences(FACTS, found)} - {"image"}
    unknown = {f"env_unknown.{name}" for name in FACTS.env_unknown}
    assert keys - unknown == {"python.version", "python.site_packages", "system"}


def test_facts_of_a_new_base_are_written_and_hold_when_they_are_read_again(base: str, project: Path) -> None:
    done = command(project, "facts", "standin-v1", "--image", base)
    assert done.returncode == 0, done.stderr
    assert "written: images/bases/standin-v1.yaml" in done.stderr
    path = project / "images/bases/standin-v1.yaml"
    written = path.read_bytes()
    assert "+  torch: 2.12.0+rocm7.14.0a20260608" in done.stdout
    assert facts.load(path).image == base
    again = command(project, "facts", "standin-v1")
    assert (again.returncode, again.stdout) == (0, "")
    assert "images/bases/standin-v1.yaml is what the image says" in again.stderr
    assert path.read_bytes() == written


def test_a_fact_that_was_published_wrongly_is_shown_before_it_is_replaced(base: str, project: Path) -> None:
    assert command(project, "facts", "standin-v1", "--image", base).returncode == 0
    path = project / "images/bases/standin-v1.yaml"
    right = path.read_text()
    path.write_text(right.replace("  datasets: 3.6.0\n", "  datasets: 3.5.0  # as announced\n  gone: 1.0.1\n"))
    wrong = path.read_text()
    done = command(project, "facts", "standin-v1", "--dry-run")
    assert "-  datasets: 3.5.0  # as announced\n" in done.stdout
    assert "+  datasets: 3.6.0\n" in done.stdout
    assert "-  gone: 1.0.1\n" in done.stdout
    assert "2 facts were others than published" in done.stderr
    assert path.read_text() == wrong
    assert command(project, "facts", "standin-v1").returncode == 0
    assert path.read_text() == right


def test_a_base_that_is_as_its_facts_say_is_built_on(engine: Engine, base: str, found: Facts, project: Path) -> None:
    """With the manifest that names this base and its facts as they were read."""
    assert command(project, "facts", "standin-v1", "--image", base).returncode == 0
    chosen = manifest_of(project, base, "unknown")
    known = facts.of(chosen, project)
    assert not list(reading.differences(known, found))
    reading.expect(engine, chosen, known, quiet)


def test_a_base_with_a_surprise_stops_the_image_with_the_lines_to_write(
    engine: Engine, base: str, project: Path, changed: Callable[[str, str], str], caught: Catches
) -> None:
    lines = "ENV VLLM_COMMIT=abc ROCR_VISIBLE_DEVICES=0\nRUN rm -r /opt/venv/lib/python3.11/site-packages/datasets-*"
    other = changed("1", f'SHELL ["/bin/bash", "-c"]\n{lines}')
    assert command(project, "facts", "standin-v1", "--image", base).returncode == 0
    path = project / "images/bases/standin-v1.yaml"
    path.write_text(path.read_text().replace(f"image: {base}", f"image: {other}"))
    chosen = manifest_of(project, other, "unknown")
    known = facts.of(chosen, project)
    started = time.monotonic()
    with pytest.raises(BaseFactsError) as surprise:
        reading.expect(engine, chosen, known, quiet)
    seconds = time.monotonic() - started
    said = str(surprise.value)
    assert (
        f"{path}:{known.where('distributions', 'datasets').line}:3: error: the base has no distributions.datasets"
        in said
    )
    assert "the base sets 'VLLM_COMMIT' to 'abc', which changes the Dockerfile" in said
    assert "hint: add it to env, and render again: VLLM_COMMIT: abc" in said
    told = "the base sets 'ROCR_VISIBLE_DEVICES', which the manifest forbids"
    assert told in said
    caught(
        "a base that sets a variable that is forbidden, unknown to its facts", Row("F04", "image", "", told, seconds)
    )


def test_an_image_without_python_is_none_to_build_on(engine: Engine, tiny: str) -> None:
    with pytest.raises(BaseFactsError) as caught:
        reading.read(engine, tiny)
    assert f"{tiny} cannot be read: it has no python" in str(caught.value)


def test_a_torch_that_does_not_load_is_told_and_made_up_for_by_nothing(
    engine: Engine, changed: Callable[[str, str], str]
) -> None:
    vandal = "echo 'import nothing_of_the_kind' > /opt/venv/lib/python3.11/site-packages/torch/__init__.py"
    reading_ = reading.read(engine, changed("2", f"RUN {vandal}"))
    assert "ModuleNotFoundError: No module named 'nothing_of_the_kind'" in " ".join(reading_.remarks)
    assert reading_.facts.device_code is None
    assert reading_.facts.python.executable == FACTS.python.executable


def manifest_of(project: Path, image: str, digest: str) -> manifest.Manifest:
    path = project / f"images/{NAME}.yaml"
    text = path.read_text().replace(MANIFEST.base.image, image).replace(MANIFEST.base.digest, digest)
    path.write_text(text.replace("facts: primus-v26.4", "facts: standin-v1"))
    return manifest.load(path)


def test_facts_of_another_digest_than_the_manifest_s_stop_an_image_before_it_is_pulled(project: Path) -> None:
    path = project / f"images/{NAME}.yaml"
    path.write_text(path.read_text().replace(MANIFEST.base.digest, f"sha256:{'a' * 64}"))
    done = command(project, "image", NAME)
    assert done.returncode == ManifestError.exit_code
    assert "the facts are of" in done.stderr
