"""Each way in which an engine fails a build: its own words, its own exit code, nothing left behind."""

from __future__ import annotations

import ast
import contextlib
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import pytest
from conftest import FACTS, MANIFEST, root_archive
from private import PrivateEngine, client, private_engine
from registries import free_port
from sleepers import sleepers, within
from table import HOW, Table

from builder import buildkit, errors, failure, verify
from builder.engine import OLDEST_WITH_CONTAINERD_STORE, Engine
from builder.errors import BuilderError, BuildFailedError
from builder.trace import Event

pytestmark = pytest.mark.timeout(240)  # an engine in trouble may never answer; where that was is then shown
BASH = 'SHELL ["/bin/bash", "-c"]'


def quiet(_: Event) -> None:
    """Watch nothing."""


def unconnected(monkeypatch: pytest.MonkeyPatch, address: str, kind: type[BuilderError]) -> BuilderError:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(BuilderError) as caught:
        Engine(owner="test")
    assert type(caught.value) is kind, caught.value
    return caught.value


def failed(engine: Engine, text: str, **options: object) -> BuilderError:
    """What a build came to; it leaves nothing in the engine."""
    before = everything(engine)
    with pytest.raises(BuilderError) as caught:
        buildkit.build(engine, text, arguments={}, watch=quiet, **options)  # type: ignore[arg-type]
    assert everything(engine) == before
    error = caught.value
    return failure.explain(error, MANIFEST) if isinstance(error, BuildFailedError) else error


def everything(engine: Engine) -> tuple[set[str], set[str]]:
    """Images with their tags, and containers."""
    images = {f"{image['Id']} {sorted(image['RepoTags'] or [])}" for image in engine.api.images(all=True)}
    return images, {container["Id"] for container in engine.api.containers(all=True)}


# The table


def test_the_table_has_a_row_for_each_situation_that_a_test_makes_and_no_other(request: pytest.FixtureRequest) -> None:
    made = [
        str(call.args[0].value)
        for path in Path(__file__).parent.glob("test_*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "told"
        if isinstance(call.args[0], ast.Constant)
    ]
    assert set(made) == set(HOW)
    if not request.config.getoption("--update-golden"):  # they are written when this run ends
        assert set(Table(update=False, engine="").rows) == set(HOW), "make engine-table"


# No engine to talk to


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: Table) -> None:
    error = unconnected(monkeypatch, f"unix://{tmp_path}/none.sock", errors.EngineAbsentError)
    assert "no container engine at unix://" in str(error)
    assert "scripts/engine start" in str(error)
    told("no engine", error)


@pytest.mark.parametrize(
    "content", [{"auths": {"h": {"auth": "%%%"}}}, {"auths": {"h": 7}}, ["a list"]], ids=["auth", "entry", "list"]
)
def test_logins_that_cannot_be_read_are_not_an_engine_that_is_missing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: Table, content: object
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(content))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    error = unconnected(monkeypatch, engine.address, errors.CredentialStoreError)
    assert f"the logins in {tmp_path / 'config.json'} cannot be read" in str(error)
    told("logins that cannot be read", error)


def test_a_socket_that_its_engine_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: Table) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "stale.sock"))
    error = unconnected(monkeypatch, f"unix://{tmp_path}/stale.sock", errors.EngineAbsentError)
    assert "no engine behind it" in str(error)
    told("stale socket", error)


def test_a_port_that_is_closed(monkeypatch: pytest.MonkeyPatch, told: Table) -> None:
    error = unconnected(monkeypatch, f"tcp://127.0.0.1:{free_port()}", errors.EngineAbsentError)
    assert "no engine listens at tcp://127.0.0.1:" in str(error)
    told("closed port", error)


def test_an_engine_behind_ssh_is_reached_by_a_tunnel(monkeypatch: pytest.MonkeyPatch, told: Table) -> None:
    error = unconnected(monkeypatch, "ssh://gpu-host", errors.EngineAbsentError)
    assert "ssh -fNL /tmp/engine.sock:/var/run/docker.sock gpu-host" in str(error)
    told("engine behind ssh", error)


def test_a_user_who_may_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: Engine, told: Table) -> None:
    if os.getuid():
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(tmp_path / "shut.sock"))
            (tmp_path / "shut.sock").chmod(0)
            error = unconnected(monkeypatch, f"unix://{tmp_path}/shut.sock", errors.EnginePermissionError)
        told("no permission", error)
        return
    # Imported before, because that user may not read this checkout either.
    program = "import os, builder.cli, builder.engine; os.setgroups([]); os.setgid(65534); os.setuid(65534); builder.cli.run()"
    environment = os.environ | {"HOME": "/", "PYTHONPATH": str(Path(errors.__file__).parents[1])}
    if "://" in engine.address:
        environment["DOCKER_HOST"] = engine.address
    done = subprocess.run(
        [sys.executable, "-c", program, "engine"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == errors.EnginePermissionError.exit_code, done.stderr
    message, _, hint = done.stderr.strip().removeprefix("error: ").partition("\n    hint: ")
    assert message.startswith("this user may not talk to the engine at ")
    told("no permission", errors.EnginePermissionError(errors.Problem(message, hint=hint)))


@contextlib.contextmanager
def saying(engine: Engine, **about: str) -> Iterator[str]:
    """A front of the engine that answers about itself what the test wants."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            answer = engine.api.get(engine.api.base_url + self.path)
            body = answer.content
            if self.path.endswith("/info"):
                body = json.dumps({**answer.json(), **about}).encode()
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_an_engine_that_is_too_old(monkeypatch: pytest.MonkeyPatch, engine: Engine, told: Table) -> None:
    with saying(engine, ServerVersion="25.0.9") as address:
        error = unconnected(monkeypatch, address, errors.EngineTooOldError)
    assert "the engine is version 25.0.9; 26.0 or newer is needed" in str(error)
    told("engine too old", error)


def test_the_containerd_store_of_an_old_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: Table) -> None:
    with private_engine(tmp_path / "engine", features={"containerd-snapshotter": True}) as private:
        version = subprocess.run(
            ["docker", "--host", private.address, "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        if tuple(map(int, version.split(".")[:2])) >= OLDEST_WITH_CONTAINERD_STORE:
            with client(private, monkeypatch) as newer:
                assert newer.version
            return
        error = unconnected(monkeypatch, private.address, errors.EngineTooOldError)
    assert "27.5 or newer is needed with the containerd image store" in str(error)
    told("containerd store before 27.5", error)


# A step that cannot go well


def test_a_dockerfile_that_is_none(engine: Engine, tiny: str, told: Table) -> None:
    error = failed(engine, f"FROM {tiny}\nRUNN true\n")
    assert "did you mean RUN?" in str(error)
    assert "python -m builder render" in str(error)
    told("Dockerfile syntax", error)


def test_a_step_without_a_network(engine: Engine, tiny: str, told: Table) -> None:
    text = f"FROM {tiny}\n{BASH}\nRUN <<'FETCH_VIME'\nexec 3<>/dev/tcp/192.0.2.1/443\nFETCH_VIME\n"
    error = failed(engine, text, network="none")
    assert "network" in str(error)
    told("no network in a step", error)


def test_a_base_that_nobody_has(engine: Engine, told: Table) -> None:
    told("base not found by BuildKit", failed(engine, f"FROM 127.0.0.1:{free_port()}/nothing:1\nRUN true\n"))


def test_a_step_that_says_nothing_for_longer_than_any_default_time_limit(engine: Engine, tiny: str) -> None:
    """The SDK gives up after 60 s, urllib3 has the same mind; a compiler may be silent for an hour."""
    built = buildkit.build(engine, f"FROM {tiny}\nRUN sleep 75\n", arguments={}, watch=quiet, no_cache=True)
    assert [round(step.seconds) >= 75 for step in built.steps] == [True]


def test_a_build_that_takes_too_long(engine: Engine, tiny: str, told: Table) -> None:
    mark = f"6{time.time_ns() % 10**7}"
    started = time.monotonic()
    error = failed(engine, f"FROM {tiny}\nRUN <<'COMPILE'\nsleep {mark}\nCOMPILE\n", time_limit_s=2)
    assert type(error) is errors.TimeLimitError
    assert "the time limit of 2 s was reached; COMPILE had run for " in str(error)
    assert time.monotonic() - started < 60, "it was cancelled; nothing else ends it"
    assert within(1, lambda: not sleepers(mark))
    told("time limit of a build", error)


def test_a_verification_that_takes_too_long(
    engine: Engine, tiny: str, monkeypatch: pytest.MonkeyPatch, told: Table
) -> None:
    monkeypatch.setattr(verify, "TIME_LIMIT_S", 1)
    python = FACTS.python.executable
    text = f"FROM {tiny}\nRUN <<'P'\nmkdir -p {os.path.dirname(python)}\necho '#!/bin/bash\necho checking; sleep 600' > {python}\nchmod +x {python}\nP\n"  # noqa: PTH120 (a path in the image)
    image = buildkit.build(engine, text, arguments={}, watch=quiet).image_id
    before = everything(engine)
    error = verify.verify(engine, image, MANIFEST, FACTS).error
    assert type(error) is errors.TimeLimitError
    assert everything(engine) == before
    assert "checking" in str(error)
    told("time limit of a verification", error)
    engine.remove_image(image)


def test_two_builds_of_one_image_at_once_share_its_steps(engine: Engine, tiny: str) -> None:
    text = f"FROM {tiny}\n{BASH}\nRUN <<'ONCE'\necho $RANDOM$RANDOM {time.time_ns()} > /once\nsleep 2\nONCE\n"
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(buildkit.build, engine, text, arguments={}, watch=quiet) for _ in range(2)]
        first, second = (build.result() for build in builds)
    assert first.image_id == second.image_id
    with (
        engine.container(first.image_id, ["cat", "/once"]) as one,
        engine.container(second.image_id, ["cat", "/once"]) as two,
    ):
        assert (one.wait(), two.wait()) == (0, 0)
        assert one.output() == two.output()


# An engine in trouble


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with a disk of 96 MB, and the small base in it."""
    with private_engine(tmp_path / "engine", disk_mb=96) as private, client(private, monkeypatch) as engine:
        engine.import_root(root_archive(), "tiny:1", ["ENV PATH=/bin"])
        yield engine


def test_a_disk_that_fills_up_in_a_step(small: Engine, told: Table) -> None:
    error = failed(small, "FROM tiny:1\nRUN <<'BUILD_VLLM'\nyes > /full\nBUILD_VLLM\n")
    assert "disk full" in str(error)
    assert buildkit.build(small, "FROM tiny:1\nRUN true\n", arguments={}, watch=quiet).image_id, (
        "the space is free again"
    )
    told("disk full in a step", error)


def test_a_disk_that_fills_up_with_the_context(small: Engine, tmp_path: Path, told: Table) -> None:
    context = tmp_path / "context"
    context.mkdir()
    with (context / "large").open("wb") as file:
        file.write(os.urandom(120 * 1024**2))
    error = failed(small, "FROM tiny:1\nCOPY large /\n", context=context)
    assert "disk full" in str(error)
    told("disk full in the build context", error)


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PrivateEngine, Engine]]:
    """An engine to be killed."""
    with private_engine(tmp_path / "engine") as private, client(private, monkeypatch) as engine:
        engine.import_root(root_archive(), "tiny:1", ["ENV PATH=/bin"])
        yield private, engine


@pytest.mark.parametrize(("how", "situation"), [("kill", "dies"), ("end", "stops")])
def test_an_engine_that_goes_away_in_a_build(
    mortal: tuple[PrivateEngine, Engine], monkeypatch: pytest.MonkeyPatch, told: Table, how: str, situation: str
) -> None:
    private, engine = mortal
    text = "FROM tiny:1\nRUN <<'ONE'\necho one\nONE\nRUN <<'TWO'\necho two; sleep 3\nTWO\n"
    before = everything(engine)

    def go(event: Event) -> None:
        if event.text == "two":
            getattr(private, how)()

    with pytest.raises(errors.EngineGoneError, match="the engine went away during the build") as caught:
        buildkit.build(engine, text, arguments={}, watch=go)
    assert "build again: finished steps are in its cache" in str(caught.value)
    if situation == "dies":
        told("engine dies in a build", caught.value)
    else:
        told("engine stops in a build", caught.value)
    assert_each_question_is_answered_in_our_words(engine)
    private.start()
    with client(private, monkeypatch) as again:
        assert everything(again) == before
        built = buildkit.build(again, text, arguments={}, watch=quiet)
    assert [(step.name, step.cached) for step in built.steps] == [("ONE", True), ("TWO", False)]


def assert_each_question_is_answered_in_our_words(gone: Engine) -> None:
    def run() -> None:
        with gone.container("tiny:1", ["true"]):
            pytest.fail("it runs")

    questions: list[Callable[[], object]] = [
        run,
        gone.remove_leftovers,
        lambda: gone.config("tiny:1"),
        lambda: gone.image_id("tiny:1"),
        lambda: gone.import_root(root_archive(), "tiny:2", []),
        lambda: gone.labels("tiny:1"),
        lambda: gone.remove_image("tiny:1"),
        lambda: gone.tag("tiny:1", "tiny:2"),
    ]
    for question in questions:
        with pytest.raises(errors.EngineGoneError, match="the engine went away"):
            question()


def test_an_engine_that_stops_in_a_verification_is_not_the_images_fault(
    mortal: tuple[PrivateEngine, Engine], told: Table
) -> None:
    private, engine = mortal
    python = FACTS.python.executable
    text = f"FROM tiny:1\nRUN mkdir -p {PurePosixPath(python).parent}\nCOPY --chmod=755 <<'P' {python}\n#!/bin/bash\necho checking; sleep 60\nP\n"
    image = buildkit.build(engine, text, arguments={}, watch=quiet).image_id
    ending = threading.Timer(2, private.end)
    ending.start()
    error = verify.verify(engine, image, MANIFEST, FACTS).error
    ending.join()
    assert type(error) is errors.EngineGoneError
    assert re.search(r"its container got SIGTERM|the engine went away", str(error))
    told("engine stops in a verification", error)


def test_an_engine_that_dies_in_a_verification(
    mortal: tuple[PrivateEngine, Engine], monkeypatch: pytest.MonkeyPatch, told: Table
) -> None:
    private, engine = mortal

    killer = threading.Timer(0.5, private.kill)

    def wait() -> None:
        with engine.container("tiny:1", ["sleep", "60"]) as container:
            killer.start()
            container.wait()

    with pytest.raises(errors.EngineGoneError) as caught:
        wait()
    killer.join()
    assert "python -m builder clean" in str(caught.value)
    told("engine dies in a verification", caught.value)
    private.start()
    with client(private, monkeypatch) as again:
        again.remove_leftovers()
        assert again.api.containers(all=True) == []
