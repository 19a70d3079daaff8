"""Engines of the tests' own: with a small disk, with other settings, to be killed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import pytest
import requests.exceptions
from sleepers import within

from builder.engine import Engine

needed = False  # whether a test fails, rather than skips, where it cannot have one; conftest sets it


class PrivateEngine:
    """A dockerd with its own socket, data, state and bridge; `folder` holds all but the socket and the state."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self.folder = folder
        self.name = f"vt{secrets.token_hex(4)}"
        self.run = Path("/run") / self.name  # a socket's path may have 107 bytes, pytest's folders are longer
        self.address = f"unix://{self.run}/docker.sock"
        self.run.mkdir()
        (self.run / "daemon.json").write_text(json.dumps(settings))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, for the first time or again.

        A bridge of its own: with `--bridge=none` it would delete the one of another engine.
        """
        (self.run / "pid").unlink(missing_ok=True)
        options = {
            "host": self.address,
            "data-root": str(self.folder / "data"),
            "exec-root": str(self.run / "exec"),
            "pidfile": str(self.run / "pid"),
            "config-file": str(self.run / "daemon.json"),
            "bridge": self.name,
            "iptables": "false",
            "storage-driver": "overlay2",
        }
        if "features" in json.loads((self.run / "daemon.json").read_text()):
            del options["storage-driver"]  # the containerd store has snapshotters
        with (self.folder / "log").open("ab") as log:
            command = ["timeout", "1200", "dockerd", *(f"--{name}={value}" for name, value in options.items())]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        if not within(60, self._answers):
            pytest.fail((self.folder / "log").read_text()[-3000:])

    def _answers(self) -> bool:
        try:
            with contextlib.closing(docker.APIClient(self.address, version="auto", timeout=5)) as asked:
                return bool(asked.ping())
        except (docker.errors.DockerException, requests.exceptions.RequestException):
            return False

    def kill(self) -> None:
        """End it as a power cut would: it cleans nothing up, and what it had started lives on."""
        self._signal(signal.SIGKILL)

    def end(self) -> None:
        """End it as its service's stop does."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it, and remove what it has left on this machine."""
        self.end()
        subprocess.run(["ip", "link", "delete", self.name], check=False, capture_output=True)
        for process in self.orphans():
            os.kill(process, signal.SIGKILL)
        # One that was killed has left the network of its containers mounted.
        for space in (self.run / "exec" / "netns").glob("*"):
            subprocess.run(["umount", "--lazy", str(space)], check=False, capture_output=True)
        shutil.rmtree(self.run, ignore_errors=True)

    def orphans(self) -> list[int]:
        """Processes that an engine had started, and that outlive it; each has the engine's state in its command."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.run / "exec").encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.run / "pid").read_text()), number)
        self.process.wait(timeout=60)
        self.process = None


def refuse_where_none_can_start() -> None:
    """Skip this test, or fail it where an engine is needed."""
    if lacking := [name for name in ("dockerd", "ip", "mount") if not shutil.which(name)]:
        (pytest.fail if needed else pytest.skip)(f"no private engine without {', '.join(lacking)}")
    if os.getuid():
        (pytest.fail if needed else pytest.skip)("only root may start a private engine")


@contextlib.contextmanager
def private_engine(folder: Path, *, disk_mb: int | None = None, **settings: object) -> Iterator[PrivateEngine]:
    """A running engine.

    Args:
        disk_mb: the size of its whole disk; this machine's where None.
        settings: what daemon.json says.
    """
    refuse_where_none_can_start()
    data = folder / "data"
    data.mkdir(parents=True)
    made = PrivateEngine(folder, settings)
    try:
        if disk_mb:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk_mb}m", "tmpfs", str(data)], check=True)
        subprocess.run(["ip", "link", "add", made.name, "type", "bridge"], check=True)
        subprocess.run(["ip", "addr", "add", subnet(), "dev", made.name], check=True)
        made.start()
        yield made
    finally:
        made.stop()
        subprocess.run(["umount", "--recursive", "--lazy", str(data)], check=False, capture_output=True)


def subnet() -> str:
    """One of 10.214 that this machine does not use."""
    used = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    return next(f"10.214.{third}.1/24" for third in range(256) if f" 10.214.{third}." not in used)


@contextlib.contextmanager
def client(private: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Our own client of a private engine."""
    monkeypatch.setenv("DOCKER_HOST", private.address)
    with contextlib.closing(Engine(owner="test-private")) as engine:
        yield engine
