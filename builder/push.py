"""An image from the engine into a registry, and its digest as the registry has it."""

from __future__ import annotations

import contextlib
import json
import re
import time
from typing import TYPE_CHECKING, Any

import docker.auth
import docker.errors
import requests.exceptions

from builder import registry
from builder.errors import EngineError, EngineGoneError, Problem, PushBrokenError, PushRefusedError, UsageError
from builder.files import write_atomically
from builder.trace import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from builder.engine import Engine

ATTEMPTS = 3
PAUSE_S = 5.0  # after the first attempt; twice that after the second
# In this order; what the engine says, the kind of error that it is, and what helps. Only what broke off is tried again.
KINDS: tuple[tuple[str, type[PushBrokenError | PushRefusedError], str], ...] = (
    (
        r"unauthorized|denied|no basic auth|authentication required|incorrect username or password",
        PushRefusedError,
        "docker login {registry}, with an account that may write to {name}",
    ),
    (
        r"x509|certificate",
        PushRefusedError,
        "the engine does not trust its certificate: put the authority's into /etc/docker/certs.d/{registry}/ca.crt",
    ),
    (
        r"HTTP response to HTTPS client",
        PushRefusedError,
        "it has no TLS: name it in `insecure-registries` of the engine's daemon.json, if that is meant",
    ),
    (
        r"EOF|connection re|broken pipe|time(d )?out|no answer|no such host|unreachable|too ?many ?requests|status: 5",
        PushBrokenError,
        "layers that are whole stay there: run it again; not reached at all, see network, proxy and DNS of the engine",
    ),
    ("", PushRefusedError, "see what the registry says of it in its log"),
)


def name_in(place: str, tag: str) -> str:
    """What an image is called in a registry.

    Args:
        place: the registry's host, and a folder of it if it has such.

    Raises:
        UsageError: where that is no place, or the image is not named by a tag.
    """
    host, _, folder = place.partition("/")
    if "://" in place or ":" in folder or not re.search(r"[.:]|^localhost$", host):
        hint = "a host, and a folder if there is one: registry.example:5000/team; Docker Hub is docker.io/ACCOUNT"
        raise UsageError(Problem(f"{place!r} names no registry", hint=hint))
    if not re.fullmatch(r"(?!sha256:)[\w./-]+:[\w.-]+", tag, re.ASCII):
        raise UsageError(Problem(f"{tag!r} is no tag", hint="name the image as `image` has: vime:rocm7.14-gfx942"))
    return f"{place.rstrip('/')}/{tag}"


def push(engine: Engine, tag: str, name: str, watch: Callable[[Event], None], note: Path) -> str:
    """The digest that the registry has for `name` once the image is there; layers that it has are not sent again.

    Args:
        note: a file that is there as long as the engine has the image under that name, for whoever comes after a kill.

    Raises:
        PushRefusedError: where the registry does not take it.
        PushBrokenError: where it was not reached, or broke off, at every attempt.
        CredentialStoreError: where the logins of this user cannot be read.
        EngineError: where the engine failed or went away.
    """
    login = registry.login_for(name)
    with _named(engine, tag, name, note):
        for attempt in range(1, ATTEMPTS):
            try:
                return _once(engine, name, login, watch)
            except PushBrokenError as error:  # noqa: PERF203 (a handful of attempts)
                pause = PAUSE_S * attempt
                watch(Event("", f"attempt {attempt} of {ATTEMPTS}, again in {pause:g} s: {error.problems[0].message}"))
                time.sleep(pause)
        return _once(engine, name, login, watch)


@contextlib.contextmanager
def _named(engine: Engine, tag: str, name: str, note: Path) -> Iterator[None]:
    """Have an image under a name for as long as the engine needs that; who had it before has it again afterwards."""
    _give_back(engine, note)
    write_atomically(note, json.dumps({"name": name, "before": engine.image_id(name)}))
    try:
        engine.tag(tag, name)
        yield
    finally:
        with contextlib.suppress(EngineError):  # it stays noted, for the next push
            _give_back(engine, note)


def _give_back(engine: Engine, note: Path) -> None:
    """Take back a name that a push has given, this one or one that was killed."""
    if not note.is_file():
        return
    given = json.loads(note.read_text("utf-8"))
    if given["before"] and engine.image_id(given["before"]):
        engine.tag(given["before"], given["name"])
    elif engine.image_id(given["name"]):
        engine.remove_image(given["name"])
    note.unlink()


def _once(engine: Engine, name: str, login: Mapping[str, Any], watch: Callable[[Event], None]) -> str:
    repository, _, tag = name.rpartition(":")
    sent = ""
    try:
        for event in engine.api.push(repository, tag, stream=True, decode=True, auth_config=login):
            if "errorDetail" in event or "error" in event:
                raise _problem(name, registry.said(event))
            if "id" in event:
                watch(registry.layer(event, "push"))
            sent = (event.get("aux") or {}).get("Digest", sent)
        found = registry.ask(engine, name, login)
    except docker.errors.APIError as error:
        raise _problem(name, str(error.explanation or error)) from error
    except requests.exceptions.Timeout as error:
        raise _problem(name, "no answer in time") from error
    except requests.exceptions.RequestException as error:
        hint = "start it again and run this again: layers that are whole stay in the registry"
        raise EngineGoneError(Problem(f"the engine went away while it pushed {name}: {error}", hint=hint)) from error
    if found != sent:
        hint = "somebody else pushes to this name: see who, and run it again"
        raise PushRefusedError(Problem(f"{name} is {found} in its registry; pushed was {sent or 'nothing'}", hint=hint))
    return found


def _problem(name: str, message: str) -> PushBrokenError | PushRefusedError:
    registry_name, _ = docker.auth.resolve_repository_name(name)
    kind, hint = next((kind, hint) for said, kind, hint in KINDS if re.search(said, message, re.IGNORECASE))
    return kind(Problem(f"cannot push {name}: {message}", hint=hint.format(name=name, registry=registry_name)))
