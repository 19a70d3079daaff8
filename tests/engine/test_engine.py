"""The engine room on a real engine."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from builder.engine import OWNER, Engine
from builder.errors import EngineAbsentError

if TYPE_CHECKING:
    from pathlib import Path

    from builder.trace import Event


def quiet(_: Event) -> None:
    """Watch nothing."""


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
        assert container.output().splitlines()[0] == "scratch"
        assert container.output().splitlines()[-1] == "closed"


def test_a_container_has_no_network(engine: Engine, tiny: str) -> None:
    with engine.container(tiny, ["ls", "/sys/class/net"]) as container:
        container.wait()
        assert container.output().split() == ["lo"]


def test_a_container_ends_at_its_time_limit(engine: Engine, tiny: str) -> None:
    with engine.container(tiny, ["sleep", "600"], time_limit_s=1) as container:
        assert container.wait() == 124


def test_no_engine_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineAbsentError) as caught:
        Engine(owner="test")
    assert "no container engine at unix://" in str(caught.value)
    assert "scripts/engine start" in str(caught.value)


def test_a_stale_socket_is_told_from_a_missing_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(stale))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{stale}")
    with pytest.raises(EngineAbsentError, match="no engine behind it"):
        Engine(owner="test")
