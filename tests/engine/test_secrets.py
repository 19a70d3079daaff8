"""Passwords of git, pip, proxies and registries are planted, and nowhere to be found in what is made or told."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import hollow
import pytest
from copies import copied

from builder import buildkit, git, standin
from builder.engine import Engine
from builder.errors import StandInError
from builder.trace import Event

CANARY = "canary-6f1d"  # part of each password
NOWHERE = "127.0.0.1:9"
PROXY = f"http://somebody:proxy-{CANARY}@{NOWHERE}"
GIT = f'[url "https://somebody:git-{CANARY}@{NOWHERE}/"]\n\tinsteadOf = https://github.com/\n'
LOGIN = base64.b64encode(f"somebody:registry-{CANARY}".encode()).decode()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with passwords everywhere."""
    for program in ("docker", "git"):
        (tmp_path / program).mkdir()
    docker = {"proxies": {"default": {"httpProxy": PROXY}}, "auths": {f"{NOWHERE}": {"auth": LOGIN}}}
    (tmp_path / "docker/config.json").write_text(json.dumps(docker))
    (tmp_path / "git/config").write_text(GIT)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "git/config"))
    monkeypatch.setenv("PIP_INDEX_URL", f"https://somebody:pip-{CANARY}@{NOWHERE}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    return tmp_path


def traces(content: bytes) -> list[str]:
    """The passwords in what was made or told, as they are or as a login is kept."""
    return [secret for secret in (CANARY, LOGIN) if secret.encode() in content]


def saved(engine: Engine, image: str) -> Iterator[bytes]:
    """All bytes of an image: its configuration, history and labels, and every layer; pieces overlap."""
    last = b""
    for piece in engine.api.get_image(image):
        yield last + piece
        last = piece[-100:]


@pytest.mark.usefixtures("planted")
def test_a_proxy_reaches_the_steps_and_leaves_no_trace(engine: Engine, tiny: str) -> None:
    lines: list[str] = []
    # The step may not name the password: its script stands in the history.
    step = (
        f'case "$HTTP_PROXY $http_proxy" in *{CANARY[:6]}*{CANARY[:6]}*) echo reached > /reached ;; *) exit 1 ;; esac'
    )
    built = buildkit.build(
        engine,
        f'FROM {tiny}\nRUN --mount=type=tmpfs,target=/tmp true\nSHELL ["/bin/bash", "-c"]\nRUN <<\'STEP\'\n{step}\nSTEP\n',
        arguments={},
        watch=lambda event: lines.append(str(event)),
        network="none",
    )
    with engine.container(built.image_id, ["cat", "/reached"]) as container:
        assert (container.wait(), container.output()) == (0, "reached\n")
    with engine.container(built.image_id, ["env"]) as container:
        container.wait()
        assert traces(container.output().encode()) == []
    assert [piece for piece in saved(engine, built.image_id) if traces(piece)] == []
    assert traces("\n".join([*lines, *map(str, engine.history(built.image_id))]).encode()) == []
    assert traces(json.dumps(engine.config(built.image_id)).encode()) == []


@pytest.mark.usefixtures("planted")
def test_an_image_of_ours_has_no_password_of_whoever_builds_it(engine: Engine) -> None:
    tag = hollow.image(engine)
    try:
        pieces = list(saved(engine, tag))
        assert any(b"vime-image.manifest" in piece for piece in pieces), "the search reads what it should"
        assert [piece for piece in pieces if traces(piece)] == []
    finally:
        engine.remove_image(tag)


@pytest.mark.usefixtures("planted")
def test_commands_that_fail_tell_no_password_and_keep_none(tmp_path: Path) -> None:
    project = copied(tmp_path)
    for command in (["preflight", "rocm7.14"], ["bump", "rocm7.14", "vime=main"]):
        done = project.run(*command)
        assert "127.0.0.1" in done.stdout + done.stderr, "a host was asked"
        assert traces((done.stdout + done.stderr).encode()) == []
    kept = [path for path in project.root.rglob("*") if path.is_file()]
    assert [path for path in kept if traces(path.read_bytes())] == []


@pytest.mark.usefixtures("planted")
def test_git_s_own_words_lose_the_login_that_its_settings_put_into_an_address() -> None:
    with pytest.raises(git.GitError) as caught:
        git.references("https://github.com/owner/name")
    assert NOWHERE in str(caught.value)
    assert traces(str(caught.value).encode()) == []


@pytest.mark.usefixtures("planted")
def test_a_rehearsal_on_a_real_index_refuses_to_write_its_password_into_a_layer() -> None:
    with pytest.raises(StandInError, match="password") as caught:
        standin._pip_configuration("real")  # noqa: SLF001 (before anything is made)
    assert traces(str(caught.value).encode()) == []


def test_what_a_step_tells_of_an_address_has_no_login() -> None:
    told = str(Event("STEP", f"fatal: unable to access '{PROXY}/x'"))
    assert told == f"STEP: fatal: unable to access 'http://{NOWHERE}/x'"
