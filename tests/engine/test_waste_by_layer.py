"""What a step leaves behind is found in its own layer, named with the step, its bytes and its path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from conftest import quiet

from builder import buildkit, layers
from builder.report import FAILED, PASSED

if TYPE_CHECKING:
    from builder.engine import Engine
    from builder.report import Check

# The base has a leftover too; it is none of ours.
BASE = """\
FROM {tiny}
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN <<'BASE'
mkdir -p /var/log
seq 10000 > /var/log/base.log
BASE
COPY <<'SEAL' /opt/vime-image/bin/seal.py
seal
SEAL
RUN <<'NEEDED'
mkdir -p /opt/app
seq 100000 > /opt/app/needed
NEEDED
"""
BYTES = 48894  # of `seq 10000`


def verdict(engine: Engine, tiny: str, *scripts: tuple[str, str]) -> Check:
    text = BASE.format(tiny=tiny) + "".join(f"RUN <<'{name}'\n{script}\n{name}\n" for name, script in scripts)
    return layers.check(engine, buildkit.build(engine, text, arguments={}, watch=quiet).image_id, text)


def test_layers_with_nothing_but_what_a_run_needs_pass(engine: Engine, tiny: str) -> None:
    found = verdict(engine, tiny, ("MORE", "seq 10 > /opt/app/more"))
    assert found.outcome == PASSED, found.detail
    assert found.detail.startswith("588.9 kB in 3 layers over those of the base; 0 B of it"), found.detail


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/root/.cache/pip/wheel", "a cache"),
        ("/tmp/list", "temporary files"),
        ("/var/lib/apt/lists/index", "apt's lists"),
        ("/var/log/step.log", "a log"),
        ("/opt/app/CMakeFiles/object", "a build tree"),
        ("/opt/app/.git/hooks/push.sample", "git's samples of hooks"),
    ],
)
def test_what_a_step_leaves_behind_is_named_with_the_step(engine: Engine, tiny: str, path: str, what: str) -> None:
    found = verdict(
        engine, tiny, ("CLEAN", "seq 9 > /opt/app/nine"), ("LEAVES", f"mkdir -p {path}.d\nseq 10000 > {path}")
    )
    assert found.outcome == FAILED
    (line,) = found.detail.splitlines()
    assert line.startswith(f"LEAVES: {what}, {BYTES / 1000:.1f} kB: {path}; "), line


def test_what_a_later_step_replaces_weighs_in_the_layer_that_made_it_first(engine: Engine, tiny: str) -> None:
    found = verdict(engine, tiny, ("FIRST", "seq 10000 > /opt/app/twice"), ("LATER", "echo short > /opt/app/twice"))
    assert found.outcome == FAILED
    assert found.detail.startswith(f"FIRST: {layers.REPLACED}, {BYTES / 1000:.1f} kB: /opt/app/twice; "), found.detail
