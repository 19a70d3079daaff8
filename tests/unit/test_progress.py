"""How a build is shown: in a log, to a program, and on a real pseudo-terminal of 80 columns."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from builder import progress
from builder.trace import Event

EVENTS = [
    Event("", "pull x"),
    Event("SEAL_BASE", "cached", "cached"),
    Event("BUILD_VLLM", "started", "started"),
    Event("BUILD_VLLM", "[1/4] hipcc a.hip", "line"),
    Event("BUILD_VLLM", "[3/4] hipcc " + "very_long_name_" * 20, "line"),
    Event("BUILD_VLLM", "done in 12.3 s", "done", 12.3),
    Event("VERIFY [bold]", "failed", "failed", 1.0),
]


def test_a_log_gets_a_line_an_event_and_no_control_character() -> None:
    stream = io.StringIO()
    with progress.Plain(stream) as watch:
        for event in EVENTS:
            watch(event)
    lines = stream.getvalue().splitlines()
    assert lines[:4] == ["pull x", "SEAL_BASE: cached", "BUILD_VLLM: started", "BUILD_VLLM: [1/4] hipcc a.hip"]
    assert len(lines) == len(EVENTS)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", stream.getvalue())


def test_a_program_gets_one_object_a_line() -> None:
    stream = io.StringIO()
    with progress.Json(stream) as watch:
        for event in EVENTS:
            watch(event)
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert found[5] == {"step": "BUILD_VLLM", "text": "done in 12.3 s", "state": "done", "seconds": 12.3}


class Terminal:
    """A pseudo-terminal of 80 columns: what is written to `stream` can be read back."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.stream: TextIO = os.fdopen(theirs, "w", encoding="utf-8")

    def read(self) -> str:
        self.stream.flush()
        parts = []
        deadline = time.monotonic() + 0.5  # a live view never falls silent
        while time.monotonic() < deadline:
            if select.select([self._ours], [], [], 0.1)[0]:
                parts.append(os.read(self._ours, 65536))
        return b"".join(parts).decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._ours)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name in ("CI", "NO_COLOR", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    found = Terminal()
    yield found
    found.close()


def test_a_terminal_shows_finished_steps_and_below_them_the_running_one(terminal: Terminal) -> None:
    watch = progress.choose(terminal.stream, os.environ, {"BUILD_VLLM": 20.0, "LATER": 100.0}, plain=False)
    assert isinstance(watch, progress.Live)
    with watch:
        for event in EVENTS[:5]:
            watch(event)
        time.sleep(0.4)
        running = terminal.read()
        for event in EVENTS[5:]:
            watch(event)
    finished = terminal.read()
    assert "running  BUILD_VLLM" in running
    assert "[1/4] hipcc a.hip" in running
    assert re.search(r"about (2:00|1:5\d) left", running)
    assert "━" in running  # ninja's counter as a bar
    assert re.search(r"12\.3 s\S*  \S*done\S*  BUILD_VLLM", re.sub(r"\x1b\[[0-9;]*m", "", finished))
    assert "VERIFY [bold]" in finished


def test_no_line_is_wider_than_the_terminal(terminal: Terminal) -> None:
    watch = progress.choose(terminal.stream, os.environ, {}, plain=False)
    with watch:
        for event in [*EVENTS[:5], Event("A_STEP_" * 30, "done", "done", 1.0)]:
            watch(event)
        time.sleep(0.4)
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.read()))
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("setting", [{"CI": "true"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_calm_gets_calm_lines(terminal: Terminal, setting: dict[str, str]) -> None:
    assert type(progress.choose(terminal.stream, setting, {}, plain=False)) is progress.Plain


def test_who_asks_for_plain_gets_it_and_so_does_a_file(terminal: Terminal) -> None:
    assert type(progress.choose(terminal.stream, {}, {}, plain=True)) is progress.Plain
    assert type(progress.choose(io.StringIO(), {}, {}, plain=False)) is progress.Plain
