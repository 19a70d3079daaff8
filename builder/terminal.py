"""A container with the user's own terminal in it, through the engine's connection alone."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import tarfile
import termios
import threading
import tty
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import docker.errors
import docker.utils.socket
import requests.exceptions

from builder.connection import answering

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from builder.engine import Engine

PIECE = 65_536  # bytes read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A container for a person: the words of `docker run`, as values."""

    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    host: Mapping[str, Any]  # as the SDK's create_host_config has them


def run(engine: Engine, session: Session, files: Mapping[str, bytes] | None = None) -> int:
    """The exit code of the session's command; its container is gone afterwards, however it ends.

    Args:
        files: by absolute path, what lies in the container before it starts.

    Raises:
        EngineError: where the container does not start, or the engine goes away.
    """
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    api = engine.api
    made = None
    try:
        with answering("the container"):
            made = api.create_container(
                session.image,
                list(session.command),
                entrypoint=[],
                environment=dict(session.environment),
                host_config=api.create_host_config(**session.host),
                labels=engine.labels_of_ours,
                stdin_open=True,
                tty=on_terminal,
            )["Id"]
            if files:
                api.put_archive(made, "/", _archive(files))
            wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            with contextlib.closing(api.attach_socket(made, wanted)) as connection:
                api.start(made)
                with _raw_terminal(api, made) if on_terminal else contextlib.nullcontext():
                    _pass_on(connection, on_terminal=on_terminal)
            return int(api.wait(made)["StatusCode"])
    finally:
        if made:
            with contextlib.suppress(docker.errors.APIError, requests.exceptions.RequestException):
                api.remove_container(made, force=True, v=True)


def _pass_on(connection: Any, *, on_terminal: bool) -> None:  # noqa: ANN401 (the SDK's, of the address's kind)
    """Pass on what each side says, until the container has said all."""
    socket = getattr(connection, "_sock", connection)
    threading.Thread(target=_pass_input, args=(socket,), daemon=True).start()
    streams = {docker.utils.socket.STDOUT: sys.stdout, docker.utils.socket.STDERR: sys.stderr}
    frames = docker.utils.socket.frames_iter(connection, tty=on_terminal)  # type: ignore[no-untyped-call]
    for stream, piece in frames:
        out = streams.get(stream, sys.stdout).buffer
        out.write(piece)
        out.flush()


def _pass_input(socket: Any) -> None:  # noqa: ANN401 (a socket of the SDK)
    with contextlib.suppress(OSError, ValueError):  # the container has ended, and its connection with it
        while True:
            select.select([sys.stdin], [], [])
            piece = os.read(sys.stdin.fileno(), PIECE)
            if not piece:
                socket.shutdown(1)  # no more input; the output goes on
                return
            socket.sendall(piece)


@contextlib.contextmanager
def _raw_terminal(api: Any, container: str) -> Iterator[None]:  # noqa: ANN401 (the SDK has no types here)
    """The terminal sends each key as it is, and the container knows its size."""
    before = termios.tcgetattr(sys.stdin)

    def fit(*_: object) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())  # not what COLUMNS in the environment says
        with contextlib.suppress(docker.errors.APIError):  # it has ended meanwhile
            api.resize(container, height=size.lines, width=size.columns)

    resized = signal.signal(signal.SIGWINCH, fit)
    tty.setraw(sys.stdin)
    try:
        fit()
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, resized)


def _archive(files: Mapping[str, bytes]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return body.getvalue()
