"""Find the container engine, and say in the user's words why there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import docker.errors
import requests.exceptions

from builder.errors import EngineAbsentError, EngineError, EnginePermissionError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = Path(__file__).parent.parent / ".engine" / "host"  # scripts/engine writes its address there


def connect() -> tuple[docker.DockerClient, str]:
    """The engine that the user's environment or context names, else this checkout's own; with its address."""
    try:
        return _client(None), os.environ.get("DOCKER_HOST", "the default socket")
    except EngineAbsentError:
        if os.environ.get("DOCKER_HOST") or not PRIVATE.is_file():
            raise
    private = PRIVATE.read_text(encoding="utf-8").strip()
    return _client(private), private


def _client(address: str | None) -> docker.DockerClient:
    try:
        return docker.DockerClient(base_url=address, version="auto") if address else docker.from_env(version="auto")
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise _unreachable(error, address) from error


def _unreachable(error: BaseException, address: str | None) -> EngineError:
    causes = list(_causes(error))
    if any(isinstance(cause, PermissionError) for cause in causes):
        return EnginePermissionError(
            Problem(
                "this user may not talk to the engine",
                hint="sudo usermod -aG docker $USER, then log in again",
            )
        )
    where = address or os.environ.get("DOCKER_HOST") or "the default socket"
    if where.startswith("ssh://"):
        remote = where.removeprefix("ssh://")
        hint = f"ssh -fNL /tmp/engine.sock:/var/run/docker.sock {remote} && export DOCKER_HOST=unix:///tmp/engine.sock"
        return EngineAbsentError(Problem(f"no way to {where}: {error}", hint=hint))
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        message = f"a socket is there, but no engine behind it ({where})"
    elif any(isinstance(cause, FileNotFoundError) for cause in causes):
        message = f"no container engine at {where}"
    else:
        message = f"no container engine at {where}: {error}"
    return EngineAbsentError(Problem(message, hint="`scripts/engine start` starts a private one"))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """`error` and what is behind it; urllib3 hides the reason among its arguments."""
    while error is not None:
        yield error
        for argument in error.args:
            if isinstance(argument, BaseException):
                yield from _causes(argument)
        error = error.__cause__ or error.__context__
