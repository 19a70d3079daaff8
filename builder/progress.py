"""Show a build to whoever watches: live on a terminal, calm lines elsewhere, one JSON object a line for programs."""

from __future__ import annotations

import collections
import json
import re
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from rich.console import Group

    from builder.trace import Event

LAST_LINES = 3
_COUNTER = re.compile(r"\[(\d+)/(\d+)\]")
_MARK = {"cached": "[dim]cached[/dim]", "done": "[green]done[/green]", "failed": "[bold red]failed[/bold red]"}


class Plain(AbstractContextManager["Plain"]):
    """A line an event, nothing that a log file could not hold."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        self._write(str(event))

    def __exit__(self, *_: object) -> None:
        return None

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class Json(Plain):
    """An object an event: step, text, state, seconds."""

    def __call__(self, event: Event) -> None:
        line = {"step": event.step, "text": event.text, "state": event.state, "seconds": round(event.seconds, 3)}
        self._write(json.dumps(line))


class Live(AbstractContextManager["Live"]):
    """Finished steps as lines that stay; below them the running one with its last lines, and what is left.

    Args:
        earlier: seconds of each step in an earlier build of this image; empty where there was none.
    """

    def __init__(self, stream: TextIO, earlier: Mapping[str, float]) -> None:
        from rich.console import Console  # noqa: PLC0415 - only who watches a terminal waits for rich
        from rich.live import Live as RichLive  # noqa: PLC0415

        self._console = Console(file=stream)
        self._earlier = dict(earlier)
        self._started = time.monotonic()
        self._running: dict[str, float] = {}
        self._lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self._counter: tuple[int, int] | None = None
        self._live = RichLive(get_renderable=self._below, console=self._console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Live:  # noqa: PYI034 (Self is younger than Python 3.10)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        from rich.markup import escape  # noqa: PLC0415

        if event.state == "line":
            self._lines.append(event.text)
            if found := _COUNTER.match(event.text):
                self._counter = int(found[1]), int(found[2])
        elif event.state == "started":
            self._running[event.step] = time.monotonic()
            self._lines.clear()
            self._counter = None
        elif event.state == "note":
            self._console.print(f"  {escape(str(event))}", highlight=False, overflow="ellipsis", no_wrap=True)
        else:
            self._running.pop(event.step, None)
            self._earlier.pop(event.step, None)
            took = f"{event.seconds:8.1f} s" if event.state != "cached" else " " * 10
            line = f"{took}  {_MARK[event.state]}  {escape(event.step)}"
            self._console.print(line, highlight=False, overflow="ellipsis", no_wrap=True)

    def _below(self) -> Group:
        from rich.console import Group  # noqa: PLC0415
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        rows: list[Text | ProgressBar] = []
        now = time.monotonic()
        for step, since in self._running.items():
            rows.append(Text(f"{now - since:8.1f} s  running  {step}", overflow="ellipsis", no_wrap=True))
            rows += [
                Text(f"            {line}", style="dim", overflow="ellipsis", no_wrap=True) for line in self._lines
            ]
        if self._counter:
            rows.append(ProgressBar(total=self._counter[1], completed=self._counter[0], width=40))
        rows.append(Text(f"{now - self._started:8.1f} s  in all{self._left(now)}", style="bold"))
        return Group(*rows)

    def _left(self, now: float) -> str:
        """What the steps that are not done took last time, less what the running ones have had."""
        left = sum(seconds - (now - self._running.get(step, now)) for step, seconds in self._earlier.items())
        return f", about {left:.0f} s left" if left > 0 else ""


def choose(
    stream: TextIO, environment: Mapping[str, str], earlier: Mapping[str, float], *, plain: bool
) -> Plain | Live:
    """Live where somebody watches a terminal that can show it; calm lines everywhere else."""
    calm = plain or not stream.isatty() or environment.get("TERM") == "dumb"
    if calm or any(environment.get(name) for name in ("CI", "NO_COLOR")):
        return Plain(stream)
    return Live(stream, earlier)
