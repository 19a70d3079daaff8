"""What a build stands on, asked of real engines and a real registry; each with what to do about it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from private import client, private_engine
from registries import SilentFront, free_port, front, pushed, registry

from builder import doctor, facts, manifest
from builder import registry as bases
from builder.engine import Engine
from builder.errors import MachineError
from builder.report import Check

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
FACTS = facts.of(MANIFEST, ROOT)
REGISTRY, LOGIN = "{0}/base:v1 has its digest in the registry", "the login for {0}/base:v1 can be read"
DISK, CACHES = "the engine's disk has room for the base", "the engine leaves the compiler's cache alone"


@pytest.fixture(scope="module")
def plain(
    engine: Engine, tiny: str, _debian: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A registry, and the digest of `base:v1` in it."""
    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host, pushed(engine, tiny, host)


def examined(host: str, digest: str, size_gb: float | None = 0.1, settings: Path = doctor.SETTINGS) -> dict[str, Check]:
    """By its name, what each probe came to for a base `base:v1` of that registry."""
    values = {"base.image": f"{host}/base:v1", "base.digest": digest}
    changed = manifest.overridden(MANIFEST, values)
    known = FACTS.model_copy(update={"image": f"{host}/base:v1", "digest": digest, "size_gb": size_gb})
    with contextlib.closing(doctor.Machine(settings)) as machine:
        return {check.name: check for check in doctor.run(machine, [(changed, known)]).checks}


def test_a_base_that_can_be_had_and_a_machine_that_is_large_enough_have_no_problem(
    plain: tuple[str, str], tmp_path: Path, engine: Engine
) -> None:
    settings = tmp_path / "daemon.json"
    settings.write_text('{"builder": {"gc": {"enabled": true, "policy": [{"all": true, "keepStorage": "64GB"}]}}}')
    found = examined(*plain, settings=settings)
    gpus = found.pop("a container can have this machine's GPUs")
    assert {check.outcome for check in found.values()} == {"passed"}, found
    assert found["a container engine answers, and is new enough"].detail.startswith(engine.version)
    assert found[REGISTRY.format(plain[0])].detail == plain[1]
    assert "the base takes 0 GB" in found[DISK].detail
    assert found[CACHES].detail == "it keeps 64.0 GB of unused cache mounts (builder.gc.policy)"
    assert gpus.outcome == ("passed" if Path("/dev/kfd").exists() else "could not run")


def test_an_engine_behind_a_forwarded_socket_has_other_gpus_and_another_disk(
    plain: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "another-machine")
    found = examined(*plain)
    for name in ("a container can have this machine's GPUs", DISK):
        assert found[name].outcome == "could not run"
    assert "the engine is on another machine" in found["a container can have this machine's GPUs"].detail


def test_a_tag_that_has_moved_is_a_problem_with_the_bump_that_follows_it(plain: tuple[str, str]) -> None:
    check = examined(plain[0], f"sha256:{'1' * 64}")[REGISTRY.format(plain[0])]
    assert check.outcome == "failed"
    assert check.detail == f"{plain[0]}/base:v1 is {plain[1]} today, base.digest is sha256:{'1' * 64}"
    assert "python -m builder bump rocm7.14 base=v1" in check.hint


def test_a_tag_that_is_gone_is_a_problem_and_a_registry_that_is_not_reached_is_none(
    plain: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = manifest.overridden(MANIFEST, {"base.image": f"{plain[0]}/base:v9", "base.digest": plain[1]})
    with contextlib.closing(doctor.Machine()) as machine:
        checks = {check.name: check for check in doctor.run(machine, [(gone, FACTS)]).checks}
    check = checks[f"{plain[0]}/base:v9 has its digest in the registry"]
    assert (check.outcome, "manifest unknown" in check.detail) == ("failed", True)
    assert checks["the facts primus-v26.4 are of this base"].outcome == "failed"
    nowhere = f"127.0.0.1:{free_port()}"
    check = examined(nowhere, plain[1])[REGISTRY.format(nowhere)]
    assert (check.outcome, "connection refused" in check.detail) == ("could not run", True)
    monkeypatch.setattr(bases, "FIRST_ANSWER_S", 2)
    with front(SilentFront, plain[0]) as silent:
        check = examined(silent, plain[1])[REGISTRY.format(silent)]
    assert (check.outcome, "no answer within 2 s" in check.detail) == ("could not run", True)


def test_a_base_larger_than_the_engine_s_disk_is_a_problem(plain: tuple[str, str]) -> None:
    check = examined(*plain, size_gb=99999)[DISK]
    assert check.outcome == "failed"
    assert "the base takes 99999 GB and the build some more" in check.detail
    check = examined(*plain, size_gb=None)[DISK]
    assert (check.outcome, "nobody knows how large" in check.detail) == ("could not run", True)


def test_a_base_that_is_there_needs_no_room(plain: tuple[str, str], engine: Engine) -> None:
    host, digest = plain
    bases.pull(engine, f"{host}/base:v1@{digest}", lambda _: None)
    try:
        check = examined(host, digest, size_gb=99999)[DISK]
    finally:
        engine.remove_image(f"{host}/base@{digest}")
    assert (check.outcome, check.detail.endswith(", the base is there")) == ("passed", True)


def test_a_small_disk_loses_the_compiler_s_cache_unless_its_engine_is_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with private_engine(tmp_path / "engine", disk_mb=64) as private, client(private, monkeypatch):
        check = examined("127.0.0.1:9", f"sha256:{'1' * 64}", settings=tmp_path / "none")[CACHES]
        assert check.outcome == "failed"
        assert "it cuts unused cache mounts to 0.5 GB (the engine's own rule); ccache fills 5 GB" in check.detail
        settings = tmp_path / "daemon.json"
        settings.write_text(check.hint.partition("engine: ")[2])
        assert check.hint.startswith(f"into {tmp_path / 'none'}, then restart")
        assert examined("127.0.0.1:9", f"sha256:{'1' * 64}", settings=settings)[CACHES].outcome == "passed"


def test_the_remedy_is_one_that_an_engine_starts_with(tmp_path: Path) -> None:
    collector = {"enabled": True, "policy": [{"all": True, "keepStorage": f"{doctor.ROOM}GB"}]}
    with private_engine(tmp_path / "engine", builder={"gc": collector}):
        pass  # one that did not start would have failed the test


@contextlib.contextmanager
def forwarded(path: str) -> Iterator[str]:
    """An engine's socket as a port of loopback, as another machine's would be reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def copy(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = server.accept()
                    far = socket.socket(socket.AF_UNIX)
                    far.connect(path)
                    for pair in ((near, far), (far, near)):
                        threading.Thread(target=copy, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_the_disk_of_an_engine_elsewhere_cannot_be_seen(
    plain: tuple[str, str], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = engine.address.removeprefix("unix://") if engine.address.startswith("unix://") else "/var/run/docker.sock"
    with forwarded(path) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        found = examined(*plain)
    assert found["a container engine answers, and is new enough"].outcome == "passed"
    assert found[REGISTRY.format(plain[0])].outcome == "passed"
    for name in (DISK, CACHES):
        assert (found[name].outcome, "which this machine cannot see" in found[name].detail) == ("could not run", True)


def test_its_exit_code_says_whether_there_is_a_problem() -> None:
    command = [sys.executable, "-m", "builder", "doctor", "rocm7.14", "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    report = json.loads(done.stdout)
    assert len(report["checks"]) == 8
    assert done.returncode == (MachineError.exit_code if report["counts"]["failed"] else 0)


def test_the_preflight_asks_what_keeps_an_image_from_being_built() -> None:
    command = [sys.executable, "-m", "builder", "preflight", "rocm7.14", "--json", "--offline"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"] if check["kind"] == "machine"}
    assert CACHES not in found
    assert found["a container engine answers, and is new enough"]["outcome"] == "passed"
    assert found["the facts primus-v26.4 are of this base"]["outcome"] == "passed"
    untried = found["rocm/primus:v26.4 has its digest in the registry"]
    assert (untried["outcome"], untried["detail"]) == ("could not run", "--offline asks no host")
