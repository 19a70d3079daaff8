"""`docker buildx bake` takes the matrix as it stands; that it makes the same images is in test_image.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manifests import GOOD, REAL, facts_of

from builder import manifest, matrix
from builder.engine import Engine


def bake(engine: Engine, file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        shutil.which("docker") or pytest.fail("no docker program"),
        "buildx",
        "bake",
        "--file",
        str(file),
        *words,
    ]
    environment = os.environ | {"DOCKER_HOST": engine.address}
    done = subprocess.run(
        command, cwd=file.parent, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def printed(engine: Engine, file: Path, text: str) -> dict[str, dict[str, object]]:
    """The targets of a file as bake has read them."""
    file.write_text(text, "utf-8")
    found: dict[str, dict[str, object]] = json.loads(bake(engine, file, "--print").stdout)["target"]
    return found


def test_bake_reads_every_dockerfile_argument_and_tag_as_it_stands(engine: Engine, tmp_path: Path) -> None:
    written = [manifest.load(path) for path in (REAL, *GOOD)]
    orders = matrix.orders((one, facts_of(one)) for one in written)
    read = printed(engine, tmp_path / "bake.json", matrix.bake(orders))
    assert {name: target["dockerfile-inline"] for name, target in read.items()} == {
        matrix.key(order): order.dockerfile for order in orders
    }
    assert {name: (target.get("args", {}), target["tags"]) for name, target in read.items()} == {
        matrix.key(order): (order.build_arguments, [order.tag, order.fixed_tag]) for order in orders
    }


@settings(max_examples=1, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text("$%{}a\\\"'\n"), min_size=300, max_size=300))
def test_no_text_is_a_template(engine: Engine, tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    target = {"dockerfile-inline": "FROM scratch", "args": {f"A{i}": matrix._literal(x) for i, x in enumerate(texts)}}  # noqa: SLF001
    text = json.dumps({"target": {"default": target}})
    read = printed(engine, tmp_path_factory.mktemp("bake") / "bake.json", text)
    assert read["default"]["args"] == {f"A{i}": text for i, text in enumerate(texts)}
