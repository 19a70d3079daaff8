"""The engine room on a real engine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import uuid

import pytest
from conftest import quiet
from sleepers import within

from builder import buildkit, render, verify
from builder.engine import OWNER, Engine
from builder.errors import EngineError, UsageError


def mine(engine: Engine) -> list[str]:
    """The containers that carry this run's label."""
    filters = {"label": f"{OWNER}={engine.owner}"}
    return [found["Id"] for found in engine.api.containers(all=True, filters=filters)]


def test_a_container_reads_its_files_and_is_gone_afterwards(engine: Engine, tiny: str) -> None:
    with engine.container(
        tiny, ["cat", "/given/a", "/given/b"], files={"/given/a": b"A\n", "/given/b": b"B\n"}
    ) as container:
        assert (container.wait(), container.output()) == (0, "A\nB\n")
    assert mine(engine) == []


def test_a_container_is_gone_also_when_its_block_fails(engine: Engine, tiny: str) -> None:
    with pytest.raises(ZeroDivisionError), engine.container(tiny, ["sleep", "600"]):
        raise ZeroDivisionError
    assert mine(engine) == []


def test_a_container_cannot_write_outside_its_scratch(engine: Engine, tiny: str) -> None:
    with engine.container(
        tiny, ["bash", "-c", "touch /tmp/x && echo scratch; touch /etc/x || echo closed"]
    ) as container:
        container.wait()
        lines = container.output().splitlines()  # of two streams, whose order nobody promises
    assert {"scratch", "closed"} < set(lines)
    assert [line for line in lines if "/etc/x" in line]


def test_a_container_has_no_network(engine: Engine, tiny: str) -> None:
    with engine.container(tiny, ["ls", "/sys/class/net"]) as container:
        container.wait()
        assert container.output().split() == ["lo"]


def test_a_container_ends_at_its_time_limit(engine: Engine, tiny: str) -> None:
    with engine.container(tiny, ["sleep", "600"], time_limit_s=1) as container:
        assert container.wait() == 124


def test_a_container_of_an_image_that_is_not_there_is_refused_in_our_words(engine: Engine) -> None:
    with (
        pytest.raises(EngineError, match="refuses to run a container: No such image: nobody/nothing:1"),
        engine.container("nobody/nothing:1", ["true"]),
    ):
        pytest.fail("it runs")
    with pytest.raises(EngineError, match="refuses to show an image: No such image: nobody/nothing:1"):
        engine.labels("nobody/nothing:1")
    with pytest.raises(EngineError, match="refuses to tag an image: No such image: nobody/nothing:1"):
        engine.tag("nobody/nothing:1", "nobody/else:1")
    assert mine(engine) == []


def test_a_killed_client_leaves_a_container_that_ends_by_itself(engine: Engine, tiny: str) -> None:
    owner = f"test-killed-{uuid.uuid4().hex[:8]}"
    program = textwrap.dedent(f"""
        from builder.engine import Engine
        with Engine({owner!r}).container({tiny!r}, ["sleep", "600"], time_limit_s=3) as container:
            print("up", flush=True)
            container.wait()
    """)
    environment = os.environ | ({"DOCKER_HOST": engine.address} if "://" in engine.address else {})
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as client:
        assert client.stdout
        assert client.stdout.readline() == "up\n"
        client.send_signal(signal.SIGKILL)
    filters = {"label": f"{OWNER}={owner}"}
    (left,) = engine.api.containers(filters=filters)  # without the one that has its volumes, and never starts
    assert left["State"] == "running", "nobody is left to end it"
    assert within(15, lambda: not engine.api.inspect_container(left["Id"])["State"]["Running"])
    state = engine.api.inspect_container(left["Id"])["State"]
    assert state["ExitCode"] == 124
    with contextlib.closing(Engine(owner)) as later:
        later.remove_leftovers()
    assert engine.api.containers(all=True, filters=filters) == []


def test_an_image_that_is_not_there_is_answered_with_the_near_one_of_ours(engine: Engine, tiny: str) -> None:
    text = f"FROM {tiny}\nLABEL {render.LABEL}.image=rocm7.14\n"
    engine.tag(buildkit.build(engine, text, arguments={}, watch=quiet).image_id, "vime:near-to-it")
    try:
        with pytest.raises(UsageError, match="no image 'vime:near-to-ti'\n    hint: did you mean 'vime:near-to-it'"):
            verify.made_from(engine, "vime:near-to-ti")
        with pytest.raises(UsageError, match="no image 'tiny'\n    hint: python -m builder image IMAGE builds one"):
            verify.made_from(engine, "tiny")
    finally:
        engine.remove_image("vime:near-to-it")
