"""Show a build to whoever watches: live on a terminal, calm lines elsewhere, one JSON object a line for programs."""

from __future__ import annotations

import json
import re
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from builder import units
from builder.errors import BuilderError, BuildFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from builder.trace import Event

LAST_LINES = 3
LAYERS_SHOWN = 6
LAYERS_EVERY_S = 30  # a calm line about a pull or a push
INDENT = " " * 12
_COUNTER = re.compile(r"\[(\d+)/(\d+)\]")  # ninja's
_MARK = {"cached": "[dim]cached[/dim]", "done": "[green]done[/green]", "failed": "[bold red]failed[/bold red]"}
_WAYS = ("pull", "push")
_MOVES = ("Downloading", "Extracting", "Pushing")
_COUNTED = ("Downloading", "Pushing")
# A push names all its layers before it sends one; a pull may find the first before it names the second.
_ARRIVED = ("Pull complete", "Pushed", "Layer already exists", "Mounted from")
_IS_THERE = (*_ARRIVED, "Already exists")


class Layers:
    """The layers of an image on their way, a pull's or a push's."""

    def __init__(self, way: str) -> None:
        self._way = way
        self._layers: dict[str, Event] = {}
        self._bytes: dict[str, tuple[int, int]] = {}

    def add(self, event: Event) -> bool:
        """Take an event of the engine in; whether it was the last layer's last."""
        if event.text.startswith("Pulling from"):  # that names the image
            return False
        self._layers = {**self._layers, event.step: event}
        before, size = self._bytes.get(event.step, (0, 0))
        size = event.size or size
        # Of a push, the engine counts the archive around the files too, but not into the size.
        got = min(event.current, size) if event.text in _COUNTED else max(before, size)
        self._bytes = {**self._bytes, event.step: (got, size)}
        return event.text.startswith(_ARRIVED) and self._there == len(self._layers)

    @property
    def moving(self) -> list[Event]:
        return [event for event in self._layers.values() if event.text in _MOVES and event.size]

    @property
    def _there(self) -> int:
        return sum(event.text.startswith(_IS_THERE) for event in self._layers.values())

    def __str__(self) -> str:
        got, size = (sum(column) for column in zip(*self._bytes.values(), strict=True)) if self._bytes else (0, 0)
        return f"{self._way}: {self._there} of {len(self._layers)} layers" + (
            f", {units.size(got)} of {units.size(size)}" if size else ""
        )


class Plain(AbstractContextManager["Plain"]):
    """A line an event, nothing that a log file could not hold; of a pull, a line now and then.

    Args:
        image: stands in every line, where several are built at once.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic, image: str = "") -> None:
        self._stream = stream
        self._clock = clock
        self._image = image
        self._layers: Layers | None = None
        self._last_told = clock()

    def __call__(self, event: Event) -> None:
        if event.state in _WAYS:
            self._layers = self._layers or Layers(event.state)
            ended = self._layers.add(event)
            if ended or self._clock() - self._last_told >= LAYERS_EVERY_S:
                self._last_told = self._clock()
                self._tell(str(self._layers))
        else:
            self._tell(f"{_place(event) if event.state != 'line' else ''}{event}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def _tell(self, line: str) -> None:
        self._write(f"{self._image}: {line}" if self._image else line)

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class Json(Plain):
    """An object an event: step, text, state, seconds; of a step its number and their total, of a layer its bytes."""

    def __call__(self, event: Event) -> None:
        line = {"step": event.step, "text": event.text, "state": event.state, "seconds": round(event.seconds, 3)}
        if event.total:
            line |= {"number": event.number, "total": event.total}
        if event.state in _WAYS:
            line |= {"current": event.current, "size": event.size}
        self._write(json.dumps({"image": self._image, **line} if self._image else line))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, BuilderError):
            step = error.step if isinstance(error, BuildFailedError) else ""
            self._write(json.dumps({"step": step, "text": str(error), "state": "error", "exit_code": error.exit_code}))


class Live(AbstractContextManager["Live"]):
    """Finished steps as lines that stay; below them the running one with its last lines, and what is left.

    Args:
        earlier: seconds of each step in an earlier build of this image; empty where there was none.
    """

    # Rich draws from a thread of its own: what it reads is replaced whole, never changed in place.

    def __init__(self, stream: TextIO, earlier: Mapping[str, float]) -> None:
        self._console = Console(file=stream)
        self._earlier = dict(earlier)
        self._started = time.monotonic()
        self._running: dict[str, tuple[Event, float]] = {}
        self._lines: tuple[str, ...] = ()
        self._counter: tuple[int, int] | None = None
        self._layers: Layers | None = None
        self._live = RichLive(get_renderable=self._below, console=self._console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Live:  # noqa: PYI034 (Self is younger than Python 3.10)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._layers:
            self._print(escape(str(self._layers)))
        self._live.stop()

    def __call__(self, event: Event) -> None:
        if event.state in _WAYS:
            self._layers = self._layers or Layers(event.state)
            self._layers.add(event)
            return
        if self._layers:
            self._print(escape(str(self._layers)))
            self._layers = None
        if event.state == "line":
            self._lines = (*self._lines, event.text)[-LAST_LINES:]
            if found := _COUNTER.match(event.text):
                self._counter = int(found[1]), int(found[2])
        elif event.state == "note":
            self._print(escape(str(event)))
        elif event.state == "started":
            self._lines, self._counter = (), None
            self._running = {**self._running, event.step: (event, time.monotonic())}
        else:
            self._finish(event)

    def _finish(self, event: Event) -> None:
        self._lines, self._counter = (), None
        self._running = {name: step for name, step in self._running.items() if name != event.step}
        self._earlier = {name: seconds for name, seconds in self._earlier.items() if name != event.step}
        took = "" if event.state == "cached" else units.clock(event.seconds)
        self._print(f"{took:>10}  {_MARK[event.state]}  {escape(_place(event) + event.step)}")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, overflow="ellipsis", no_wrap=True)

    def _below(self) -> Group:
        return Group(*self._rows())

    def _rows(self) -> Iterator[RenderableType]:
        now = time.monotonic()
        for event, since in self._running.values():
            yield _line(f"{units.clock(now - since):>10}  running  {_place(event)}{event.step}")
            yield from (_line(f"{INDENT}{line}", "dim") for line in self._lines)
        if counter := self._counter:
            yield _bar(Text(f"{INDENT[:-1]}"), *counter, Text(f"{counter[0]}/{counter[1]}"))
        if layers := self._layers:
            for layer in layers.moving[:LAYERS_SHOWN]:
                label = _line(f"  {layer.step[:12]:12} {layer.text:11}")
                yield _bar(
                    label, layer.current, layer.size, Text(f"{units.size(layer.current)} of {units.size(layer.size)}")
                )
            yield _line(f"  {layers}")
        yield _line(f"{units.clock(now - self._started):>10}  in all{self._left(now)}", "bold")

    def _left(self, now: float) -> str:
        """What the steps that are not done took last time, less what the running ones have had."""
        had = {name: now - since for name, (_, since) in self._running.items()}
        left = sum(max(0.0, seconds - had.get(name, 0.0)) for name, seconds in self._earlier.items())
        return f", about {units.clock(left)} left" if left >= 1 else ""


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, overflow="ellipsis", no_wrap=True)


def _bar(label: Text, done: int, total: int, text: Text) -> Table:
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_row(label, ProgressBar(total=total, completed=done, width=24), text)
    return row


def _place(event: Event) -> str:
    width = len(str(event.total))
    return f"[{event.number:{width}}/{event.total}] " if event.total else ""


def choose(
    stream: TextIO, environment: Mapping[str, str], earlier: Mapping[str, float], *, plain: bool
) -> Plain | Live:
    """Live where somebody watches a terminal that can show it; calm lines everywhere else."""
    calm = plain or not stream.isatty() or environment.get("TERM", "") in {"", "dumb", "unknown"}
    if calm or any(environment.get(name) for name in ("CI", "NO_COLOR")):
        return Plain(stream)
    return Live(stream, earlier)
