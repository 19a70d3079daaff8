"""The base image, from its registry into the engine; BuildKit itself could not log in anywhere."""

from __future__ import annotations

import re
import shutil
import warnings
from typing import TYPE_CHECKING, Any, Literal

import docker.auth
import docker.credentials.errors
import docker.errors
import docker.utils.config
import requests.exceptions

from builder.connection import UNREADABLE, unreadable_logins
from builder.errors import (
    BaseDigestError,
    BaseImageError,
    BaseUnauthorisedError,
    CredentialStoreError,
    EngineGoneError,
    Problem,
    PullDiskFullError,
    RegistryError,
)
from builder.trace import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from builder.engine import Engine

FIRST_ANSWER_S = 20
# The SDK's two families, and what Python says of a configuration or an answer of another shape.
UNUSABLE = (docker.errors.DockerException, docker.credentials.errors.StoreError, *UNREADABLE)
# In this order; what the engine says of a registry, the kind of error that it is, and what helps.
KINDS: tuple[tuple[str, type[BaseImageError], str], ...] = (
    (
        r"no space left on device|disk quota exceeded",
        PullDiskFullError,
        "the engine's disk is full: docker system df shows where it went",
    ),
    (
        r"unauthorized|denied|no basic auth|authentication required|incorrect username or password",
        BaseUnauthorisedError,
        "docker login {registry}, with an account that may read it",
    ),
    (r"toomanyrequests|too many requests", RegistryError, "it limits anonymous pulls: docker login {registry}"),
    (r"manifest unknown|not found|name unknown", BaseImageError, "see what there is: docker manifest inspect {name}"),
    (
        r"x509|certificate",
        RegistryError,
        "the engine does not trust its certificate: put the authority's into /etc/docker/certs.d/{registry}/ca.crt",
    ),
    (
        r"unexpected EOF|connection reset|broken pipe|short read|content-length|failed commit on ref",
        RegistryError,
        "the connection broke off; what is whole stays: run it again",
    ),
    ("", RegistryError, "the registry was not reached: check network, proxy and DNS of the engine"),
)


def pull(engine: Engine, reference: str, watch: Callable[[Event], None]) -> None:
    """Have `name:tag@sha256:...` in the engine, unless it is there.

    Raises:
        BaseImageError: where it cannot be had; its kinds say why.
        EngineGoneError: where the engine goes away.
    """
    if engine.image_id(reference):
        return
    name, _, digest = reference.partition("@")
    by_digest = f"{repository(name)}@{digest}" if digest else name
    login = login_for(name)
    try:
        ask(engine, by_digest, login)
        for event in engine.api.pull(by_digest, stream=True, decode=True, auth_config=login):
            if "errorDetail" in event or "error" in event:
                raise _problem(reference, said(event))
            if "id" in event:
                watch(layer(event, "pull"))
    except docker.errors.APIError as error:
        message = str(error.explanation or error)
        raise _other_digest(engine, reference, login, message) or _problem(reference, message) from error
    except requests.exceptions.Timeout as error:
        raise _problem(reference, f"no answer within {FIRST_ANSWER_S} s") from error
    except requests.exceptions.RequestException as error:
        hint = "start it and run this again: layers that are whole stay"
        raise EngineGoneError(
            Problem(f"the engine went away while it pulled {reference}: {error}", hint=hint)
        ) from error


def digest(engine: Engine, image: str) -> str:
    """The digest that an image's tag has in its registry today; nothing is pulled.

    Raises:
        BaseImageError: where it cannot be had; its kinds say why.
        EngineGoneError: where the engine goes away.
    """
    login = login_for(image)
    try:
        return ask(engine, image, login)
    except docker.errors.APIError as error:
        raise _problem(image, str(error.explanation or error)) from error
    except requests.exceptions.Timeout as error:
        raise _problem(image, f"no answer within {FIRST_ANSWER_S} s") from error
    except requests.exceptions.RequestException as error:
        hint = "start it again and run this again"
        raise EngineGoneError(Problem(f"the engine went away: {error}", hint=hint)) from error


def repository(image: str) -> str:
    """An image's name without its tag."""
    return image.rpartition(":")[0] if ":" in image.rpartition("/")[2] else image


def login_for(name: str) -> dict[str, Any]:
    """What `docker login` has left for the registry of an image; empty where it has left nothing."""
    registry, _ = docker.auth.resolve_repository_name(name)
    store, key = None, "auths"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a program that is missing there is a warning and an error
            logins = docker.auth.load_config()
            store = logins.get_credential_store(registry)
            key = "credsStore" if store == logins.creds_store else "credHelpers"
            return logins.resolve_authconfig(registry) or {}
    except UNUSABLE as error:
        # Without its cause: the SDK's error quotes what the program wrote, which may be a password.
        raise _no_login(registry, store, key, error) from None


def _no_login(registry: str, store: object, key: str, error: Exception) -> CredentialStoreError:
    config = str(docker.utils.config.find_config_file())
    if not store:
        return unreadable_logins()
    program = f"docker-credential-{store}"
    hint = f"remove {key!r} from {config} and docker login {registry}"
    if shutil.which(program) is None:
        message = f"{program}, which {config} names as {key!r}, is not on PATH or cannot be run"
        return CredentialStoreError(Problem(message, hint=f"install it, or {hint}"))
    fails = isinstance(error, docker.errors.DockerException | docker.credentials.errors.StoreError)
    message = f"{program}, which {config} names as {key!r}, {'fails' if fails else 'answers with no login'}"
    return CredentialStoreError(Problem(message, hint=f"see what ails it: {program} list; or {hint}"))


def ask(engine: Engine, name: str, login: Mapping[str, Any]) -> str:
    """The digest of an image in its registry; without a time limit, a silent wall holds the build for minutes."""
    before, engine.api.timeout = engine.api.timeout, FIRST_ANSWER_S
    try:
        found = engine.api.inspect_distribution(name, auth_config=login)  # type: ignore[no-untyped-call]
    finally:
        engine.api.timeout = before
    return str(found["Descriptor"]["digest"])


def _problem(reference: str, message: str) -> BaseImageError:
    name = reference.partition("@")[0]
    registry, _ = docker.auth.resolve_repository_name(name)
    kind, hint = next((kind, hint) for said, kind, hint in KINDS if re.search(said, message, re.IGNORECASE))
    return kind(Problem(f"cannot have {reference}: {message}", hint=hint.format(name=name, registry=registry)))


def _other_digest(engine: Engine, reference: str, login: Mapping[str, Any], message: str) -> BaseDigestError | None:
    """Where the registry knows the tag and not the digest, what the tag has today."""
    name, _, digest = reference.partition("@")
    if not digest or not re.search("manifest unknown|not found", message):
        return None
    try:
        today = ask(engine, name, login)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return None
    hint = "a tag moves, a digest does not: pin today's, and have the facts of the base read again"
    return BaseDigestError(Problem(f"{name} is {today} today; its registry has no {digest}", hint=hint))


def said(event: Mapping[str, Any]) -> str:
    """What a record of an error says; `error` alone is the old way, which engines are to drop."""
    return str((event.get("errorDetail") or {}).get("message") or event.get("error"))


def layer(event: Mapping[str, Any], way: Literal["pull", "push"]) -> Event:
    """What an engine says of a layer on its way."""
    bytes_ = event.get("progressDetail") or {}
    if bytes_.get("units"):  # the containerd store counts seconds of unpacking
        bytes_ = {}
    return Event(
        str(event["id"]), str(event["status"]), way, current=bytes_.get("current", 0), size=bytes_.get("total", 0)
    )
