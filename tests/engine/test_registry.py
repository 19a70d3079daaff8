"""The base from a real registry: as it should be, and each way in which it cannot be had."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from private import client, private_engine
from registries import PASSWORD, USER, CutFront, Front, SilentFront, TokenFront, free_port, front, pushed, registry
from table import Table

from builder import buildkit, errors
from builder import registry as bases
from builder.engine import Engine
from builder.errors import BaseImageError, BuilderError
from builder.trace import Event

NOWHERE = f"sha256:{'1' * 64}"


def quiet(_: Event) -> None:
    """Watch nothing."""


@pytest.fixture(scope="module")
def plain(
    engine: Engine, tiny: str, _debian: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A registry that asks for nothing, and the digest of the image `base:v1` in it."""
    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host, pushed(engine, tiny, host)


@pytest.fixture(scope="module")
def locked(
    engine: Engine, tiny: str, _debian: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A registry with a password."""
    with registry(tmp_path_factory.mktemp("locked"), password=True) as host:
        yield host, pushed(engine, tiny, host, username=USER, password=PASSWORD)


@contextlib.contextmanager
def gone_afterwards(engine: Engine, reference: str) -> Iterator[str]:
    try:
        yield reference
    finally:
        with contextlib.suppress(Exception):
            engine.remove_image(reference.replace(":v1@", "@"))


def config(folder: Path, monkeypatch: pytest.MonkeyPatch, **content: object) -> None:
    """What `docker login` leaves."""
    (folder / "config.json").write_text(json.dumps(content))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


def login(host: str, password: str = PASSWORD) -> dict[str, object]:
    return {"auths": {host: {"auth": basic(password)}}}


def basic(password: str) -> str:
    return base64.b64encode(f"{USER}:{password}".encode()).decode()


def refused(engine: Engine, reference: str, kind: type[BuilderError]) -> BuilderError:
    with pytest.raises(BuilderError) as caught:
        bases.pull(engine, reference, quiet)
    assert type(caught.value) is kind, caught.value
    assert engine.image_id(reference) is None
    return caught.value


# As it should be


@pytest.mark.parametrize("kind", [None, Front, TokenFront], ids=["plain", "front", "anonymous token"])
def test_a_base_is_pulled_by_digest_and_built_on(
    engine: Engine, kind: type[Front] | None, plain: tuple[str, str]
) -> None:
    host, digest = plain
    with (
        front(kind, host) if kind else contextlib.nullcontext(host) as where,
        gone_afterwards(engine, f"{where}/base:v1@{digest}") as reference,
    ):
        told: list[Event] = []
        bases.pull(engine, reference, told.append)
        assert engine.image_id(reference)
        assert {event.state for event in told} == {"pull"}
        for name in (reference, reference.replace(":v1@", "@")):
            built = buildkit.build(
                engine, f"FROM {name}\nRUN echo built > /proof\n", arguments={}, watch=quiet, network="none"
            )
            assert [step.name for step in built.steps] == ["RUN echo built > /proof"]


def test_a_base_that_is_here_is_not_asked_for_again(engine: Engine, tiny: str) -> None:
    bases.pull(engine, tiny, lambda event: pytest.fail(str(event)))


def test_a_pull_tells_the_bytes_of_its_layers(
    plain: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, digest = plain
    with private_engine(tmp_path / "engine") as private, client(private, monkeypatch) as other:
        told: list[Event] = []
        bases.pull(other, f"{host}/base:v1@{digest}", told.append)
    counted = [event for event in told if event.size]
    assert counted
    assert all(0 < event.current <= event.size for event in counted)


def test_a_password_is_taken_from_where_docker_login_put_it_and_shown_nowhere(  # noqa: PLR0913, PLR0917 - pytest's
    engine: Engine,
    tmp_path: Path,
    locked: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    host, digest = locked
    config(tmp_path, monkeypatch, **login(host))
    caplog.set_level(logging.DEBUG)
    with gone_afterwards(engine, f"{host}/base:v1@{digest}") as reference:
        told: list[Event] = []
        bases.pull(engine, reference, told.append)
        assert engine.image_id(reference)
    assert caplog.records, "the SDK and urllib3 talk at this level"
    shown = (str(told), caplog.text, *capfd.readouterr())
    assert not [text for text in shown for secret in (PASSWORD, basic(PASSWORD)) if secret in text]


# Ways to go wrong


def test_a_digest_that_the_tag_does_not_have_comes_with_the_one_that_it_has(
    engine: Engine,
    plain: tuple[str, str],
    told: Table,
) -> None:
    host, digest = plain
    error = refused(engine, f"{host}/base:v1@{NOWHERE}", errors.BaseDigestError)
    assert f"{host}/base:v1 is {digest} today; its registry has no {NOWHERE}" in str(error)
    told("base with another digest", error)


def test_a_base_that_nobody_has_is_not_found(engine: Engine, plain: tuple[str, str], told: Table) -> None:
    error = refused(engine, f"{plain[0]}/nothing:v1@{NOWHERE}", errors.BaseImageError)
    assert f"docker manifest inspect {plain[0]}/nothing:v1" in str(error)
    told("base not found", error)


def test_without_a_password_the_hint_is_to_log_in(engine: Engine, locked: tuple[str, str], told: Table) -> None:
    host, digest = locked
    error = refused(engine, f"{host}/base:v1@{digest}", errors.BaseUnauthorisedError)
    assert f"docker login {host}" in str(error)
    told("base without a login", error)


def test_a_wrong_password_is_told_without_being_shown(
    engine: Engine,
    locked: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Table,
) -> None:
    host, digest = locked
    config(tmp_path, monkeypatch, **login(host, "canary-of-a-wrong-one"))
    error = refused(engine, f"{host}/base:v1@{digest}", errors.BaseUnauthorisedError)
    assert "canary" not in str(error)
    told("base with a wrong password", error)


def test_a_registry_that_is_not_there_was_not_reached(engine: Engine, told: Table) -> None:
    error = refused(engine, f"127.0.0.1:{free_port()}/base:v1@{NOWHERE}", errors.RegistryError)
    assert "check network, proxy and DNS" in str(error)
    told("registry not reached", error)


def test_a_registry_that_never_answers_is_given_up(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, told: Table
) -> None:
    monkeypatch.setattr(bases, "FIRST_ANSWER_S", 2)
    with front(SilentFront, "") as host:
        error = refused(engine, f"{host}/base:v1@{NOWHERE}", errors.RegistryError)
    assert "no answer within 2 s" in str(error)
    told("registry never answers", error)


def test_a_registry_that_breaks_off_in_a_layer_leaves_nothing_half_and_the_next_pull_is_whole(
    plain: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Table,
) -> None:
    host, digest = plain
    settings = {"max-download-attempts": 1}
    with private_engine(tmp_path / "engine", **settings) as private, client(private, monkeypatch) as other:
        with front(CutFront, host) as cut:
            error = refused(other, f"{cut}/base:v1@{digest}", errors.RegistryError)
            assert "run it again" in str(error)
        assert other.api.images() == []
        bases.pull(other, f"{host}/base:v1@{digest}", quiet)
        assert other.image_id(f"{host}/base:v1@{digest}")
    told("registry breaks off in a layer", error)


def test_a_disk_that_fills_up_during_a_pull_is_told(
    plain: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Table,
) -> None:
    host, digest = plain
    with (
        private_engine(tmp_path / "engine", disk_mb=4, **{"max-download-attempts": 1}) as private,
        client(private, monkeypatch) as other,
    ):
        error = refused(other, f"{host}/base:v1@{digest}", errors.PullDiskFullError)
    assert "docker system df" in str(error)
    told("disk full in a pull", error)


# What the program does; what is said of it, and never what it wrote.
PROGRAMS: dict[str, tuple[str | None, str]] = {
    "missing": (None, "is not on PATH or cannot be run"),
    "failing": (f"#!/bin/sh\necho '{PASSWORD}'\nexit 1\n", "fails"),
    "without an interpreter": ("#!/nonexistent\n", "fails"),
    "talking rubbish": (f"#!/bin/sh\necho '{PASSWORD}'\n", "answers with no login"),
    "answering null": ("#!/bin/sh\necho null\n", "answers with no login"),
    "answering by halves": (f'#!/bin/sh\necho \'{{"Secret": "{PASSWORD}"}}\'\n', "answers with no login"),
    "answering in bytes": ("#!/bin/sh\nprintf '\\377'\n", "answers with no login"),
}


@pytest.mark.parametrize("which", sorted(PROGRAMS))
@pytest.mark.parametrize("key", ["credsStore", "credHelpers"])
def test_a_broken_credential_store_is_told_with_its_program_its_file_and_the_way_out(  # noqa: PLR0913, PLR0917 - pytest's
    engine: Engine, plain: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, key: str
) -> None:
    host, digest = plain
    source, said = PROGRAMS[which]
    if source:
        (tmp_path / "docker-credential-broken").write_text(source)
        (tmp_path / "docker-credential-broken").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config(tmp_path, monkeypatch, **{key: "broken" if key == "credsStore" else {host: "broken"}})
    error = refused(engine, f"{host}/base:v1@{digest}", errors.CredentialStoreError)
    file = tmp_path / "config.json"
    assert f"docker-credential-broken, which {file} names as {key!r}, {said}" in str(error)
    assert f"remove {key!r} from {file} and docker login {host}" in str(error)
    assert PASSWORD not in "".join(traceback.format_exception(error))


def test_a_program_that_is_not_there_has_an_exit_code_of_its_own(
    engine: Engine, plain: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Table
) -> None:
    host, digest = plain
    config(tmp_path, monkeypatch, credHelpers={host: "gone"})
    error = refused(engine, f"{host}/base:v1@{digest}", errors.CredentialStoreError)
    told("credential program broken", error)


def test_a_configuration_of_another_shape_is_told(
    engine: Engine, plain: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, digest = plain
    config(tmp_path, monkeypatch, credHelpers=["broken"])
    error = refused(engine, f"{host}/base:v1@{digest}", errors.CredentialStoreError)
    assert f"the logins in {tmp_path / 'config.json'} cannot be read" in str(error)


def test_every_kind_of_refusal_has_an_exit_code_of_its_own() -> None:
    kinds: list[Callable[..., BaseImageError]] = [kind for _, kind, _ in bases.KINDS]
    assert {kind.exit_code for kind in kinds} == {14, 16, 17, 19}  # type: ignore[attr-defined]
