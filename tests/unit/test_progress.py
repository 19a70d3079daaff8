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
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from builder import progress
from builder.errors import BuildFailedError, Problem
from builder.trace import Event

ROOT = Path(__file__).parents[2]
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


def test_a_program_gets_the_place_of_a_step_and_the_bytes_of_a_layer() -> None:
    stream = io.StringIO()
    with progress.Json(stream) as watch:
        watch(Event("LINKS", "started", "started", number=3, total=41))
        watch(Event("a1b2", "Downloading", "pull", current=5, size=10))
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (found[0]["number"], found[0]["total"]) == (3, 41)
    assert (found[1]["state"], found[1]["current"], found[1]["size"]) == ("pull", 5, 10)


def test_a_program_is_told_of_a_failure_with_its_step_and_exit_code() -> None:
    stream = io.StringIO()
    with pytest.raises(BuildFailedError), progress.Json(stream):
        raise BuildFailedError(Problem("no\nlog"), step="LINKS")
    assert json.loads(stream.getvalue()) == {
        "step": "LINKS",
        "text": "error: no\nlog",
        "state": "error",
        "exit_code": 20,
    }


def test_a_log_shows_where_a_step_stands_and_its_lines_with_its_name() -> None:
    stream = io.StringIO()
    with progress.Plain(stream) as watch:
        watch(Event("LINKS", "started", "started", number=3, total=41))
        watch(Event("LINKS", "ln -s", "line", number=3, total=41))
        watch(Event("LINKS", "done in 2.0 s", "done", 2.0, 3, 41))
    assert stream.getvalue().splitlines() == ["[ 3/41] LINKS: started", "LINKS: ln -s", "[ 3/41] LINKS: done in 2.0 s"]


LAYERS = [
    Event("v26.4", "Pulling from rocm/primus", "pull"),
    Event("a1b2c3d4e5f6", "Pulling fs layer", "pull"),
    Event("b1b2c3d4e5f6", "Already exists", "pull"),
    Event("a1b2c3d4e5f6", "Downloading", "pull", current=4 * 10**8, size=12 * 10**9),
]


def test_a_log_gets_a_line_of_a_pull_now_and_then_and_one_at_its_end() -> None:
    stream, now = io.StringIO(), [0.0]
    with progress.Plain(stream, lambda: now[0]) as watch:
        for event in LAYERS:
            watch(event)
        assert stream.getvalue() == ""
        now[0] = 31.0
        watch(LAYERS[-1])
        watch(LAYERS[-1])
        watch(Event("a1b2c3d4e5f6", "Pull complete", "pull"))
    assert stream.getvalue().splitlines() == [
        "pull: 1 of 2 layers, 400.0 MB of 12.0 GB",
        "pull: 2 of 2 layers, 12.0 GB of 12.0 GB",
    ]


class Terminal:
    """A pseudo-terminal of 80 columns: what is written to `stream` can be read back."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.stream: TextIO = os.fdopen(theirs, "w", encoding="utf-8")
        self.resize(80)

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

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
    assert re.search(r"about (2:00|1:5\d) min left", running)
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


def test_a_terminal_shows_the_layers_of_a_pull_with_their_bytes(terminal: Terminal) -> None:
    watch = progress.choose(terminal.stream, os.environ, {}, plain=False)
    with watch:
        for event in LAYERS:
            watch(event)
        time.sleep(0.4)
        pulling = terminal.read()
        watch(Event("a1b2c3d4e5f6", "Pull complete", "pull"))
        watch(Event("LINKS", "started", "started", number=3, total=41))
        time.sleep(0.4)
        building = terminal.read()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", pulling)
    assert re.search(r"a1b2c3d4e5f6 Downloading +[^a-z]+ 400\.0 MB of 12\.0 GB", plain)
    assert "pull: 1 of 2 layers" in plain
    assert "pull: 2 of 2 layers" in building
    assert "running  [ 3/41] LINKS" in building


def test_the_counter_of_ninja_is_a_bar_with_its_numbers(terminal: Terminal) -> None:
    with progress.Live(terminal.stream, {}) as watch:
        for event in EVENTS[2:5]:
            watch(event)
        time.sleep(0.4)
        assert re.search(r"━.* 3/4", terminal.read())


def test_a_terminal_of_another_width_is_filled_and_no_more(terminal: Terminal) -> None:
    """A program of its own, as people start it: standard error is the terminal, standard output a file."""
    program = (
        "import sys, time\nfrom builder import progress\nfrom builder.trace import Event\n"
        "with progress.choose(sys.stderr, {'TERM': 'xterm'}, {}, plain=False) as watch:\n"
        "    for state in ('started', 'line', 'done'):\n"
        "        watch(Event('X' * 300, '[1/2] ' + 'y' * 300, state, 1.0, 7, 41))\n"
        "        time.sleep(0.3)\n"
    )
    terminal.resize(60)
    subprocess.run(
        [sys.executable, "-c", program],
        stderr=terminal.stream,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        check=True,
        cwd=ROOT,
        env=dict(os.environ),  # readline, which pytest loads, has put COLUMNS where only a child would see it
    )
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.read()))
    assert [line for line in lines if len(line) > 60] == []
    assert [line for line in lines if len(line) == 60]


def test_the_cursor_is_back_when_a_build_is_stopped(terminal: Terminal) -> None:
    with pytest.raises(KeyboardInterrupt), progress.Live(terminal.stream, {}):
        raise KeyboardInterrupt
    assert terminal.read().rpartition("\x1b[?25")[2].startswith("h")


@pytest.mark.parametrize("setting", [{}, {"CI": "true"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_calm_gets_calm_lines(terminal: Terminal, setting: dict[str, str]) -> None:
    assert type(progress.choose(terminal.stream, setting, {}, plain=False)) is progress.Plain


def test_who_asks_for_plain_gets_it_and_so_does_a_file(terminal: Terminal) -> None:
    assert type(progress.choose(terminal.stream, {}, {}, plain=True)) is progress.Plain
    assert type(progress.choose(io.StringIO(), {}, {}, plain=False)) is progress.Plain
