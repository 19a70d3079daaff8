"""Images whose records or whose Python say what none of ours says: each command that reads them says whose fault it is."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import hollow
import pytest
from conftest import FACTS, MANIFEST, ROOT, root_archive
from test_records import GOOD, INSIDE, STEP

from builder import contents, project, proof, side
from builder.engine import Engine
from builder.errors import OUR_FAULT, BaseFactsError, ForgedRecordError
from builder.lists import HOME

NAME = MANIFEST.name
TAG = "vime:forged-gfx942"
FORGED = {
    "no JSON": {"manifest.json": b"{", "policy.json": b"{"},
    "lists for objects": {f"plans/{STEP}.json": b"[]", "seal.json": b"[]", "verification.json": b"[]"},
    "numbers for texts": {"sources/vllm.json": b'{"repository": 7, "commit": 7}', f"plans/{STEP}.json": b"7"},
    "nothing in them": dict.fromkeys(GOOD, b"{}"),
    "brackets without end": dict.fromkeys(GOOD, b"[" * 100_000),
    "more than fits": {"seal.json": b" " * (contents.LONGEST + 1)},
}
# What its Python answers to whoever asks it for its distributions; in place of the words after the nonce.
ANSWERS = {
    "no JSON": "{",
    "a list": "[]",
    "nothing in it": "{}",
    "a number": json.dumps({**INSIDE, "distributions": 7}),
}


def forged(engine: Engine, files: Mapping[str, bytes], answer: str = json.dumps(INSIDE), name: str = NAME) -> None:
    """Have an image with those files, by the tag of an image of ours; its Python has one answer to everything."""
    body = root_archive()
    good = {path: json.dumps(value).encode() for path, value in GOOD.items()}
    everything = {f"{HOME}/{path}": content for path, content in {**good, **files}.items()}
    everything[FACTS.python.executable] = f"#!/bin/bash\nprintf '%s%s\\n' \"$4\" '{answer}'\n".encode()
    with tarfile.open(fileobj=body, mode="a") as archive:
        for path, content in everything.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    body.seek(0)
    path = f"{Path(FACTS.python.executable).parent}:/bin"
    labels = f"LABEL vime-image.image={name} vime-image.gpu_targets=gfx942 vime-image.pins='as manifest'"
    engine.import_root(body, TAG, [f"ENV PATH={path}", labels])


@pytest.fixture
def image(engine: Engine) -> Iterator[None]:
    yield
    engine.remove_image(TAG)


def run(root: Path, engine: Engine, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root), "DOCKER_HOST": engine.address}
    command = [sys.executable, "-m", "builder", *words]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("case", FORGED)
def test_a_command_that_reads_forged_records_says_that_the_image_is_to_blame(engine: Engine, case: str) -> None:
    forged(engine, FORGED[case])
    for words in (("explain", TAG), ("explain", TAG, "--json"), ("sbom", TAG), ("diff", TAG, NAME)):
        done = run(ROOT, engine, *words)
        assert (done.returncode, done.stdout) == (ForgedRecordError.exit_code, ""), done.stderr
        assert TAG in done.stderr
        assert len(done.stderr) < 1000


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("case", ANSWERS)
def test_a_python_that_answers_nonsense_is_told_as_the_image_s_own(engine: Engine, case: str) -> None:
    forged(engine, {}, ANSWERS[case])
    done = run(ROOT, engine, "sbom", TAG)
    assert (done.returncode, done.stdout) == (BaseFactsError.exit_code, ""), done.stderr
    assert "cannot be read: the answer of " in done.stderr
    done = run(ROOT, engine, "diff", TAG, TAG)
    assert done.returncode == 0, done.stderr
    assert f"distributions: unknown, {TAG} cannot be read: the answer of " in done.stdout


@pytest.mark.usefixtures("image")
def test_an_image_that_only_looks_like_ours_is_read(engine: Engine) -> None:
    """What the others are refused for is what was forged in them."""
    forged(engine, {})
    for words in (("explain", TAG), ("sbom", TAG), ("diff", TAG, TAG)):
        assert run(ROOT, engine, *words).returncode == 0
    assert side.of_image(engine, TAG).distributions == {"numpy": "1.26.4", "torch": "2.12.0"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this project whose image is the forged one, and has passed its checks."""
    root = tmp_path / "project"
    for folder in ("builder", "dockerfiles", "images", "templates"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (root / f"images/{NAME}.yaml").rename(root / "images/forged.yaml")
    return root


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("case", [case for case in FORGED if case != "more than fits"])
def test_a_lock_is_not_taken_from_forged_records(engine: Engine, checkout: Path, case: str) -> None:
    forged(engine, FORGED[case])
    proof.keep(checkout, hollow.report(engine.image_id(TAG) or "", "passed"))
    before = {path: path.read_bytes() for path in (checkout / "images").rglob("*") if path.is_file()}
    done = run(checkout, engine, "lock", "forged")
    assert (done.returncode, done.stdout) == (ForgedRecordError.exit_code, ""), done.stderr
    assert TAG in done.stderr
    assert {path: path.read_bytes() for path in (checkout / "images").rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("image")
def test_a_verification_tells_what_it_found_also_where_the_records_are_forged(engine: Engine, checkout: Path) -> None:
    forged(engine, FORGED["nothing in them"], name="forged")
    done = run(checkout, engine, "verify", TAG)
    assert done.returncode != OUR_FAULT, done.stderr
    assert "Traceback" not in done.stderr
    assert project.kept(checkout, TAG).joinpath("report.html").read_text().count("is none that we write")
