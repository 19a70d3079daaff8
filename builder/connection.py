"""Find the container engine, and say in the user's words why there is none."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import docker.context
import docker.errors
import docker.utils.config
import docker.utils.utils
import requests.exceptions

from builder.errors import (
    CredentialStoreError,
    EngineAbsentError,
    EngineError,
    EngineGoneError,
    EnginePermissionError,
    Problem,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = Path(__file__).parent.parent / ".engine" / "host"  # scripts/engine writes its address there
# Of a config.json that is of another shape than `docker login` gives it, the SDK checks only the half.
UNREADABLE = (docker.errors.InvalidConfigFile, AttributeError, LookupError, TypeError, ValueError)
# The export, because an address in the environment, or an engine at the default socket, goes before a private one.
A_PRIVATE_ONE = "for a private one: scripts/engine start && export DOCKER_HOST=$(cat .engine/host)"


def connect() -> tuple[docker.DockerClient, str]:
    """The engine that the user's environment or context names, else this checkout's own; with its address."""
    try:
        return _client(None), os.environ.get("DOCKER_HOST", "the default socket")
    except EngineAbsentError:
        if _named() or not PRIVATE.is_file():
            raise
    private = PRIVATE.read_text("utf-8", "replace").strip()
    return _client(private), private


def _named() -> str:
    """What the user's environment calls the engine, an address or a context; empty where it says nothing."""
    return os.environ.get("DOCKER_HOST") or os.environ.get("DOCKER_CONTEXT") or ""


def _client(address: str | None) -> docker.DockerClient:
    _assert_named_right(address)
    try:
        return docker.DockerClient(base_url=address, version="auto") if address else docker.from_env(version="auto")
    except UNREADABLE as error:
        raise unreadable_logins() from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise _unreachable(error, address) from error


def _assert_named_right(address: str | None) -> None:
    """Refuse an address that is none, and a context that the SDK would pass over for the default socket."""
    host, context = address or os.environ.get("DOCKER_HOST"), os.environ.get("DOCKER_CONTEXT")
    try:
        docker.utils.utils.parse_host(host)
    except ValueError as error:
        raise EngineAbsentError(Problem(f"{host} is no address of an engine: {error}", hint=A_PRIVATE_ONE)) from error
    except docker.errors.DockerException:
        pass  # told where it is used
    if context and not host and docker.context.ContextAPI.get_context(context) is None:
        raise EngineAbsentError(Problem(f"docker has no context {context!r}", hint="docker context ls"))


def unreadable_logins() -> CredentialStoreError:
    """The SDK reads them as soon as there is a client, whether or not anybody logs in."""
    config = str(docker.utils.config.find_config_file())
    hint = f"mend it, or move it away and docker login again: mv {config} {config}.broken"
    return CredentialStoreError(Problem(f"the logins in {config} cannot be read", hint=hint))


def _unreachable(error: BaseException, address: str | None) -> EngineError:
    causes = list(_causes(error))
    where = address or os.environ.get("DOCKER_HOST") or "the default socket"
    if any(isinstance(cause, PermissionError) for cause in causes):
        hint = "sudo usermod -aG docker $USER, then log in again"
        return EnginePermissionError(Problem(f"this user may not talk to the engine at {where}", hint=hint))
    if where.startswith("ssh://"):
        remote = where.removeprefix("ssh://")
        hint = f"ssh -fNL /tmp/engine.sock:/var/run/docker.sock {remote} && export DOCKER_HOST=unix:///tmp/engine.sock"
        return EngineAbsentError(Problem(f"no way to {where}: {error}", hint=hint))
    refused = any(isinstance(cause, ConnectionRefusedError) for cause in causes)
    if where.startswith("tcp://"):
        reason = "connection refused" if refused else str(error)
        hint = f"unset DOCKER_HOST, if this machine's own engine is meant; {A_PRIVATE_ONE}"
        return EngineAbsentError(Problem(f"no engine listens at {where}: {reason}", hint=hint))
    if refused:
        hint = f"sudo systemctl start docker; {A_PRIVATE_ONE}"
        return EngineAbsentError(Problem(f"a socket is there, but no engine behind it ({where})", hint=hint))
    found = "" if any(isinstance(cause, FileNotFoundError) for cause in causes) else f": {error}"
    return EngineAbsentError(Problem(f"no container engine at {where}{found}", hint=A_PRIVATE_ONE))


@contextlib.contextmanager
def answering(doing: str, afterwards: str = "start it again and run this again") -> Iterator[None]:
    """Have what an engine refuses, and its absence, told in our words.

    Args:
        doing: what the engine is asked for, as in "the engine refuses ...".
        afterwards: what to do where it went away.

    Raises:
        EngineError: where the engine refuses.
        EngineGoneError: where it went away.
    """
    try:
        yield
    except docker.errors.APIError as error:
        raise EngineError(Problem(f"the engine refuses {doing}: {error.explanation or error}")) from error
    except requests.exceptions.RequestException as error:
        raise EngineGoneError(Problem(f"the engine went away: {error}", hint=afterwards)) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """`error` and what is behind it; urllib3 hides the reason among its arguments."""
    while error is not None:
        yield error
        for argument in error.args:
            if isinstance(argument, BaseException):
                yield from _causes(argument)
        error = error.__cause__ or error.__context__
