"""An image into a real registry: as it should be, and each way in which it does not get there."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hollow
import pytest
from private import client, private_engine
from registries import PASSWORD, USER, free_port, pushed, registry
from table import Table
from test_registry import config, login

from builder import buildkit, errors, proof, push
from builder.engine import Engine
from builder.errors import BuilderError, UnprovedError
from builder.project import ROOT
from builder.report import Outcome
from builder.trace import Event

NOTE = ROOT / "build/tests/pushing.json"
BIG = 48 * 1024**2  # bytes of a layer that takes a while


def quiet(_: Event) -> None:
    """Watch nothing."""


@pytest.fixture(scope="module")
def image(engine: Engine, tiny: str) -> Iterator[str]:
    """An image with the label of ours; its tag."""
    tag = f"vime-images-test/{secrets.token_hex(4)}:tiny-gfx942"
    text = f"FROM {tiny}\nLABEL vime-image.image=rocm7.14 nonce={secrets.token_hex(8)}\n"
    engine.tag(buildkit.build(engine, text, arguments={}, watch=quiet).image_id, tag)
    yield tag
    engine.remove_image(tag)


@pytest.fixture(scope="module")
def plain(_debian: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(scope="module")
def locked(_debian: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("locked"), password=True) as host:
        yield host


def refused(engine: Engine, tag: str, host: str, kind: type[BuilderError]) -> BuilderError:
    name = push.name_in(host, tag)
    with pytest.raises(BuilderError) as caught:
        push.push(engine, tag, name, quiet, NOTE)
    assert type(caught.value) is kind, caught.value
    assert engine.image_id(name) is None, "the name that the engine needed is taken back"
    return caught.value


# As it should be


def test_an_image_is_in_the_registry_by_its_tag_with_the_digest_that_was_read_back(
    engine: Engine, image: str, plain: str
) -> None:
    told: list[Event] = []
    name = push.name_in(f"{plain}/team", image)
    digest = push.push(engine, image, name, told.append, NOTE)
    assert name == f"{plain}/team/{image}"
    assert engine.api.inspect_distribution(name)["Descriptor"]["digest"] == digest  # type: ignore[no-untyped-call]
    assert {event.state for event in told} == {"push"}
    assert engine.image_id(name) is None
    again: list[Event] = []
    assert push.push(engine, image, name, again.append, NOTE) == digest
    assert {event.text for event in again} == {"Preparing", "Layer already exists"}


def test_a_name_that_somebody_had_given_is_theirs_again_afterwards(
    engine: Engine, image: str, tiny: str, plain: str
) -> None:
    name = push.name_in(plain, image)
    engine.tag(tiny, name)
    try:
        push.push(engine, image, name, quiet, NOTE)
        assert engine.image_id(name) == engine.image_id(tiny)
    finally:
        engine.remove_image(name)


def test_a_name_that_a_killed_push_has_left_goes_with_the_next_one(
    engine: Engine, image: str, tiny: str, plain: str
) -> None:
    left, theirs = push.name_in(f"{plain}/killed", image), push.name_in(f"{plain}/theirs", image)
    for name, before in ((left, None), (theirs, engine.image_id(tiny))):
        engine.tag(image, name)
        NOTE.parent.mkdir(parents=True, exist_ok=True)
        NOTE.write_text(json.dumps({"name": name, "before": before}))
        push.push(engine, image, push.name_in(plain, image), quiet, NOTE)
        assert not NOTE.exists()
        assert engine.image_id(name) == before
    engine.remove_image(theirs)


def test_a_name_that_an_engine_has_stays_noted_while_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pushing.json"
    note.write_text(json.dumps({"name": "localhost/team/vime:left", "before": None}))
    with private_engine(tmp_path / "engine") as private, client(private, monkeypatch) as gone:
        pass
    with pytest.raises(errors.EngineError):
        push.push(gone, "vime:left", "localhost/team/vime:left", quiet, note)
    assert note.exists()


def test_a_login_is_taken_from_where_docker_login_put_it(
    engine: Engine, image: str, locked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, monkeypatch, **login(locked))
    told: list[Event] = []
    assert push.push(engine, image, push.name_in(locked, image), told.append, NOTE).startswith("sha256:")
    assert PASSWORD not in str(told)


def run(engine: Engine, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DOCKER_HOST": engine.address}
    command = [sys.executable, "-m", "builder", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_the_command_prints_the_name_with_its_digest_and_what_the_image_has_passed(
    engine: Engine, image: str, plain: str
) -> None:
    image_id = engine.image_id(image) or ""
    proof.keep(ROOT, hollow.report(image_id, "passed"))
    try:
        done = run(engine, "push", image, plain)
        assert done.returncode == 0, done.stderr
        (line,) = done.stdout.splitlines()
        assert line.startswith(f"{plain}/{image}@sha256:")
        assert "verified: rocm7.14 for gfx942: 1 passed, 0 failed, 0 could not run (pins: as manifest)" in done.stderr
        assert "push: 2 of 2 layers" in done.stderr or "push: 1 of 1 layers" in done.stderr
        *events, last = map(json.loads, run(engine, "push", image, plain, "--json").stdout.splitlines())
        assert last == {"reference": line, "image_id": image_id}
        assert {event["state"] for event in events} == {"note", "push"}
    finally:
        proof._path(ROOT, image_id).unlink()  # noqa: SLF001


# What is not pushed


@pytest.mark.parametrize("outcome", ["failed", "could not run"])
def test_an_image_whose_last_verification_did_not_pass_is_not_pushed(
    engine: Engine, image: str, tmp_path: Path, outcome: Outcome
) -> None:
    image_id = engine.image_id(image) or ""
    proof.keep(tmp_path, hollow.report(image_id, "passed"))
    assert proof.passed(tmp_path, image_id, image).image_id == image_id
    proof.keep(tmp_path, hollow.report(image_id, outcome))
    with pytest.raises(UnprovedError, match=f"has not passed its checks: .* 0 passed.*\n.*verify {image}"):
        proof.passed(tmp_path, image_id, image)


def test_an_image_without_a_proof_is_refused_with_the_command_that_gives_one(
    engine: Engine, image: str, plain: str
) -> None:
    done = run(engine, "push", image, plain)
    assert done.returncode == UnprovedError.exit_code, done.stderr
    assert "was not verified by this checkout" in done.stderr
    assert f"hint: python -m builder verify {image}" in done.stderr


def test_an_image_that_is_none_of_ours_is_refused(engine: Engine, tiny: str, plain: str) -> None:
    done = run(engine, "push", tiny, plain)
    assert done.returncode == errors.UsageError.exit_code
    assert f"{tiny!r} is none of our images: it has no label vime-image.image" in done.stderr


def test_a_proof_that_cannot_be_read_proves_nothing(tmp_path: Path) -> None:
    image_id = f"sha256:{'1' * 64}"
    proof.keep(tmp_path, hollow.report(image_id, "passed"))
    path = proof._path(tmp_path, image_id)  # noqa: SLF001
    for text in ("", "{}", "[]", path.read_text().replace("111", "222"), path.read_text().replace('"passed"', '"ok"')):
        path.write_text(text)
        assert proof.of(tmp_path, image_id) is None


# Ways to go wrong


def test_without_a_login_the_hint_is_to_log_in(engine: Engine, image: str, locked: str, told: Table) -> None:
    error = refused(engine, image, locked, errors.PushRefusedError)
    assert f"docker login {locked}, with an account that may write to" in str(error)
    told("push without a login", error)


def test_a_wrong_password_is_told_without_being_shown_and_not_tried_again(  # noqa: PLR0913, PLR0917 - pytest's
    engine: Engine, image: str, locked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Table
) -> None:
    monkeypatch.setattr("builder.push.time.sleep", lambda _: pytest.fail("a password does not get right by waiting"))
    config(tmp_path, monkeypatch, **login(locked, "canary-of-a-wrong-one"))
    error = refused(engine, image, locked, errors.PushRefusedError)
    assert "canary" not in str(error)
    assert USER not in str(error)
    told("push with a wrong password", error)


def test_a_registry_that_is_not_there_is_told_after_every_attempt(
    engine: Engine, image: str, monkeypatch: pytest.MonkeyPatch, told: Table
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("builder.push.time.sleep", pauses.append)
    error = refused(engine, image, f"127.0.0.1:{free_port()}", errors.PushBrokenError)
    assert pauses == [5.0, 10.0]
    told("push to a registry that is not there", error)


@pytest.mark.usefixtures("_debian")
def test_a_registry_that_goes_away_in_mid_push_and_comes_back_gets_the_whole_image(
    engine: Engine, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "PAUSE_S", 0.2)
    context, tag = tmp_path / "context", f"vime-images-test/{secrets.token_hex(4)}:big-gfx942"
    context.mkdir()
    (context / "noise").write_bytes(secrets.token_bytes(BIG))
    built = buildkit.build(engine, f"FROM {tiny}\nCOPY noise /\n", arguments={}, watch=quiet, context=context)
    engine.tag(built.image_id, tag)
    port, notes = free_port(), list[str]()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        name = push.name_in(first.enter_context(registry(tmp_path / "registry", port=port)), tag)

        def watch(event: Event) -> None:
            if event.text == "Pushing" and event.current > BIG // 8:
                first.close()
            if event.state == "note":
                notes.append(event.text)
            if len(notes) == push.ATTEMPTS - 1 and event.state == "note":
                stack.enter_context(registry(tmp_path / "registry", port=port))

        digest = push.push(engine, tag, name, watch, NOTE)
        assert [note.partition(",")[0] for note in notes] == ["attempt 1 of 3", "attempt 2 of 3"]
        assert engine.api.inspect_distribution(name)["Descriptor"]["digest"] == digest  # type: ignore[no-untyped-call]
        engine.remove_image(tag)
        engine.api.pull(name)
        assert engine.image_id(name) == built.image_id
        engine.remove_image(name)


@pytest.mark.parametrize("place", ["https://registry.example", "team", "team/project", ""])
def test_what_names_no_registry_is_told_before_anything_is_asked(place: str) -> None:
    with pytest.raises(errors.UsageError, match="names no registry"):
        push.name_in(place, "vime:rocm7.14-gfx942")


def test_an_image_goes_by_its_tag_and_not_by_its_id() -> None:
    with pytest.raises(errors.UsageError, match="is no tag"):
        push.name_in("localhost", f"sha256:{'1' * 64}")


# Steps from a registry


@pytest.fixture
def stepped(engine: Engine, tiny: str, plain: str) -> str:
    """A Dockerfile on a base of the registry, whose steps come to something else each time that they run."""
    base = pushed(engine, tiny, plain)
    nonce = secrets.token_hex(8)
    return (
        f"FROM {plain}/base@{base}\nRUN <<'FIRST'\necho $RANDOM$RANDOM {nonce} > /first\nFIRST\nRUN cp /first /second\n"
    )


def test_a_cold_engine_takes_every_step_from_an_image_of_a_registry(  # noqa: PLR0913, PLR0917 - pytest's
    engine: Engine, stepped: str, image: str, plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    name = push.name_in(plain, f"cache/{image}")
    first = buildkit.build(
        engine, stepped, arguments={}, watch=lambda event: told.append(str(event)), network="none", cache_from=name
    )
    assert [step.cached for step in first.steps] == [False, False]
    assert [line for line in told if line.startswith(f"nothing is taken from {name}: ")], "there is no such image yet"
    tag = f"{image}-cache"
    engine.tag(first.image_id, tag)
    push.push(engine, tag, name, quiet, NOTE)
    with private_engine(tmp_path / "engine") as private, client(private, monkeypatch) as cold:
        without = buildkit.build(cold, stepped, arguments={}, watch=quiet, network="none")
        assert [step.cached for step in without.steps] == [False, False], "it is cold"
    with private_engine(tmp_path / "second") as private, client(private, monkeypatch) as cold:
        told.clear()
        again = buildkit.build(
            cold, stepped, arguments={}, watch=lambda event: told.append(str(event)), network="none", cache_from=name
        )
        assert [step.cached for step in again.steps] == [True, True], told
        layers = [engine.api.inspect_image(made.image_id) for engine, made in ((engine, first), (cold, again))]  # type: ignore[no-untyped-call]
        assert layers[0]["RootFS"] == layers[1]["RootFS"]
        assert not [line for line in told if "nothing is taken" in line]
    engine.remove_image(tag)
