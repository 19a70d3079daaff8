"""Real registries on loopback, and fronts that stand before them: a token service, a wall, a cut cable."""

from __future__ import annotations

import contextlib
import getpass
import http.client
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.engine import Engine

ROOT = Path(__file__).parents[2]
USER, PASSWORD = "someone", "canary-d41d8cd9"
# Made by crypt(3) of libxcrypt with a salt of our choice; a registry reads nothing but bcrypt.
HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuGmORyA7/bNuX1h2w0NuYJtTy4MeDk/W"
TOKEN = "an-anonymous-token"  # noqa: S105 (nobody's)


def program() -> Path:
    """Debian's docker-registry: this machine's, else from its package, which is unpacked and not installed."""
    installed = shutil.which("docker-registry")
    if installed:
        return Path(installed)
    folder = ROOT / ".cache" / "docker-registry"
    unpacked = folder / "usr" / "bin" / "docker-registry"
    if not unpacked.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            run(folder, "apt-get", "download", "docker-registry")
        except subprocess.CalledProcessError:  # a fresh machine has no lists of packages yet
            lists = lists_of_ours(folder)
            run(folder, "apt-get", *lists, "update")
            run(folder, "apt-get", *lists, "download", "docker-registry")
        (package,) = folder.glob("docker-registry_*.deb")
        run(folder, "dpkg-deb", "-x", str(package), ".")
        package.unlink()
    return unpacked


def lists_of_ours(folder: Path) -> list[str]:
    """Options of apt for lists of packages in `folder`: only root may renew the machine's."""
    settings = {"Dir::State::lists": folder / "lists", "Dir::Cache": folder / "apt"}
    for path in settings.values():
        (path / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "apt" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    user = getpass.getuser()
    return [f"-o{name}={value}" for name, value in {**settings, "APT::Sandbox::User": user}.items()]


def run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)


@contextlib.contextmanager
def registry(folder: Path, *, password: bool = False, port: int | None = None) -> Iterator[str]:
    """A registry with its data in `folder`; its `host:port`."""
    folder.mkdir(exist_ok=True)
    port = port or free_port()
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    if password:
        (folder / "htpasswd").write_text(HTPASSWD + "\n")
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    command = ["timeout", "1800", str(program()), "serve", str(folder / "config.yml")]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until_it_answers(port, folder / "log")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def pushed(engine: Engine, image: str, host: str, **login: str) -> str:
    """The digest of `image`, which is `base:v1` in the registry from now on, and gone from the engine."""
    name = f"{host}/base"
    engine.api.tag(image, name, "v1")
    lines = [
        json.loads(line)
        for line in engine.api.push(name, "v1", stream=True, auth_config=login or None)
        for line in line.splitlines()
        if line
    ]
    assert not [line for line in lines if "error" in line], lines
    digest = next(line["aux"]["Digest"] for line in lines if "Digest" in line.get("aux", {}))
    engine.remove_image(f"{name}:v1")
    return str(digest)


def until_it_answers(port: int, log: Path) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    pytest.fail(f"the registry does not answer: {log.read_text()}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Front(http.server.BaseHTTPRequestHandler):
    """Passes requests on to a registry."""

    behind = ""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.pass_on()

    def do_GET(self) -> None:
        self.pass_on()

    def pass_on(self) -> None:
        connection = http.client.HTTPConnection(self.behind, timeout=60)
        with contextlib.closing(connection):
            passed = {
                name: value for name, value in self.headers.items() if name.lower() not in {"host", "authorization"}
            }
            connection.request(self.command, self.path, headers=passed)
            answer = connection.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") or str(len(body))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.send_body(body)

    def send_body(self, body: bytes) -> None:
        self.wfile.write(body)


class TokenFront(Front):
    """Wants an anonymous bearer token, as Docker Hub does."""

    def pass_on(self) -> None:
        if self.path.startswith("/token"):
            body = json.dumps({"token": TOKEN, "expires_in": 300}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            here = self.headers["Host"]
            self.send_response(401)
            challenge = f'Bearer realm="http://{here}/token",service="{here}",scope="repository:base:pull"'
            self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().pass_on()


class CutFront(Front):
    """Ends a connection in the middle of a layer."""

    whole = 100_000  # bytes: what is larger is a layer

    def send_body(self, body: bytes) -> None:
        if len(body) > self.whole:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            super().send_body(body)


class SilentFront(Front):
    """Takes a request and never answers."""

    def pass_on(self) -> None:
        time.sleep(60)


@contextlib.contextmanager
def front(kind: type[Front], behind: str) -> Iterator[str]:
    """A front before the registry at `behind`; its `host:port`."""
    handler = type(kind.__name__, (kind,), {"behind": behind})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
