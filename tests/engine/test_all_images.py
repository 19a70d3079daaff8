"""Several images that fail before their first step: what `image --all` tells of each, and how often."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FACTS, MANIFEST, ROOT
from registries import pushed, registry

from builder.engine import Engine
from builder.errors import ImagesError

NAME, TARGET = "rocm7.14", "gfx942"
TAGS = (f"vime:{NAME}-{TARGET}", f"vime:second-{TARGET}")


@pytest.fixture
def said(engine: Engine, tiny: str, _debian: None, tmp_path: Path) -> str:
    """What two images say whose base has no Python at all, with -v."""
    root = tmp_path / "project"
    for folder in ("builder", "dockerfiles", "images", "templates"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for other in {*(root / "images").glob("*.yaml")} - {root / f"images/{NAME}.yaml"}:
        other.unlink()
    with registry(tmp_path / "registry") as host:
        digest = pushed(engine, tiny, host)
        for path in (root / f"images/{NAME}.yaml", root / FACTS.path.relative_to(ROOT)):
            text = path.read_text("utf-8").replace(MANIFEST.base.image, f"{host}/base:v1")
            path.write_text(text.replace(MANIFEST.base.digest, digest), "utf-8")
        shutil.copy(root / f"images/{NAME}.yaml", root / "images/second.yaml")
        environment = os.environ | {"PYTHONPATH": str(root), "DOCKER_HOST": engine.address}
        command = [sys.executable, "-m", "builder", "image", "--all", "--gpu-target", TARGET, "-v"]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        engine.remove_image(f"{host}/base@{digest}")
    assert done.returncode == ImagesError.exit_code, done.stderr
    return done.stderr


def test_each_says_what_it_asks_and_an_error_is_told_once_with_its_image(said: str) -> None:
    for tag in TAGS:
        asked = rf"^{re.escape(tag)}: engine: POST \S+/containers/create: 201 \(\d+\.\d\d s\)$"
        assert re.search(asked, said, re.MULTILINE), said
        assert len(re.findall(rf"^{re.escape(tag)}: (?:\S+:\d+:\d+: )?error: ", said, re.MULTILINE)) == 1
    assert len(re.findall(r"^(?:vime:\S+: )?(?:\S+:\d+:\d+: )?error: ", said, re.MULTILINE)) == len(TAGS) + 1
