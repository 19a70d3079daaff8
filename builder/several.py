"""Several images on one engine: none beside one with the same compile, a few at a time, and what became of each.

Each is a process of its own, `image`, so one that fails or is stopped gives back what it holds as it always does.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from builder import build as building
from builder import matrix
from builder.errors import BaseImageError
from builder.report import FAILED
from builder.told import LOG
from builder.trace import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from builder.build import Order
    from builder.engine import Engine

    Watch = Callable[[Order, Event], None]

State = Literal["built", "failed", "stopped", "not begun"]
STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # how a process of ours ends that was told to
_ERROR = re.compile(r"(\S+:\d+:\d+: )?error: ")  # as every problem begins
_OF_EVENTS = {field.name for field in fields(Event)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one image.

    Attributes:
        error: why it was not built, as its process has said it.
    """

    order: Order
    state: State
    seconds: float = 0.0
    tags: tuple[str, ...] = ()
    error: str = ""


def pull_bases(engine: Engine, orders: Iterable[Order], watch: Watch) -> dict[str, str]:
    """Have each base once; of those that cannot be had, by reference, why."""
    firsts = {order.manifest.base.reference: order for order in orders}
    found = {base: _refusal(engine, order, watch) for base, order in firsts.items()}
    return {base: error for base, error in found.items() if error}


def _refusal(engine: Engine, order: Order, watch: Watch) -> str:
    try:
        building.have_base(engine, order.manifest, lambda event: watch(order, event))
    except BaseImageError as error:
        return str(error)
    return ""


def run(  # noqa: PLR0913 (each is one fact of the run)
    orders: Sequence[Order],
    command: Callable[[Order], Sequence[str]],
    *,
    jobs: int,
    fail_fast: bool,
    watch: Watch,
    refused: Mapping[str, str],
) -> list[Outcome]:
    """Run the command of each, so many at a time; what became of each, as they began.

    Of those that wait, one begins whose compile is not in work, rather one whose compile is done, the first of them.

    Args:
        command: prints an object a line, as `image --json` does.
        fail_fast: the first that fails stops the others, and keeps those that wait from beginning.
        refused: bases that cannot be had, and why: what needs one has failed.
    """
    crew = _Crew(orders, command, watch, refused, fail_fast=fail_fast)
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(crew.build_next) for _ in orders]
        try:
            return [future.result() for future in futures]
        except BaseException:
            crew.stop()
            raise


class _Crew:
    """The orders that wait, the processes that run, and whether another may begin."""

    def __init__(
        self,
        orders: Sequence[Order],
        command: Callable[[Order], Sequence[str]],
        watch: Watch,
        refused: Mapping[str, str],
        *,
        fail_fast: bool,
    ) -> None:
        self._waiting = [(order, matrix.compiled(order)) for order in orders]
        self._in_work: list[object] = []  # compiles
        self._done: list[object] = []
        self._command = command
        self._watch = watch
        self._refused = refused
        self._fail_fast = fail_fast
        self._lock = threading.Lock()
        self._stopping = False
        self._running: list[subprocess.Popen[str]] = []

    def stop(self) -> None:
        """End what runs, each as SIGTERM ends it, and let nothing begin."""
        with self._lock:
            self._stopping = True
            for process in self._running:
                process.terminate()

    def build_next(self) -> Outcome:
        with self._lock:
            order, compiled = min(self._waiting, key=lambda one: (one[1] in self._in_work, one[1] not in self._done))
            self._waiting.remove((order, compiled))
            self._in_work.append(compiled)
        outcome = self._build(order)
        with self._lock:
            self._in_work.remove(compiled)
            if outcome.state == "built":
                self._done.append(compiled)
        return outcome

    def _build(self, order: Order) -> Outcome:
        started = time.monotonic()
        refusal = self._refused.get(order.manifest.base.reference)
        if refusal and not self._stopping:
            return self._failed(order, refusal, 0.0)
        process = None if refusal else self._begun(order)
        if process is None:
            return Outcome(order=order, state="not begun")
        with process:
            report, error = _followed(order, process, self._watch)
        seconds = time.monotonic() - started
        if process.returncode == 0:
            tags = tuple(filter(None, (report.get("tag"), report.get("fixed_tag"))))
            return Outcome(order=order, state="built", seconds=seconds, tags=tags)
        if self._stopping and process.returncode in STOPPED:
            return Outcome(order=order, state="stopped", seconds=seconds)
        return self._failed(order, error or f"its process ended with exit code {process.returncode}", seconds)

    def _begun(self, order: Order) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._stopping:
                return None
            # In a session of its own: a Ctrl-C is this process's, which then stops each once.
            process = subprocess.Popen(
                self._command(order),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.append(process)
            return process

    def _failed(self, order: Order, error: str, seconds: float) -> Outcome:
        self._watch(order, Event("", error))
        if self._fail_fast:
            self.stop()
        return Outcome(order=order, state="failed", seconds=seconds, error=error)


def _followed(order: Order, process: subprocess.Popen[str], watch: Watch) -> tuple[dict[str, Any], str]:
    """Pass on what a process tells; its report, and what it says of a failure, once.

    An error comes as an event, if the build has begun, and in any case on standard error.
    """
    report: dict[str, Any] = {}
    errors, odd, failed, last = [], [], [], list[str]()
    talk = threading.Thread(target=_pass_on, args=(order, process.stderr or (), last))
    talk.start()
    for line in process.stdout or ():
        said: Any = line.rstrip("\n")
        with contextlib.suppress(ValueError):
            said = json.loads(line)
        match said:
            case {"state": "error", "text": str(text)}:
                errors.append(text)
            case {"state": _}:
                watch(order, Event(**{name: value for name, value in said.items() if name in _OF_EVENTS}))
            case {"checks": checks}:
                report = said
                failed = [f"{check['name']}: {check['detail']}" for check in checks if check["outcome"] == FAILED]
            case _:
                odd.append(str(said))
    talk.join()
    return report, "\n".join([*odd, *failed, *(errors or last)])


def _pass_on(order: Order, talk: Iterable[str], last: list[str]) -> None:
    """Tell what a process says beside its data, with its image; what it ends with, an error, goes into `last`."""
    for line in talk:
        text = line.rstrip("\n")
        if last or _ERROR.match(text):
            last.append(text)
        else:
            LOG.info("%s: %s", order.tag, text)
