"""Builds by BuildKit over the docker SDK's own connection: `POST /build?version=2` with a tar body.

The SDK's `images.build` is the classic builder, which drops the bodies of heredocs and reports success.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import tarfile
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from builder.errors import BuildFailedError, EngineError, Problem, TimeLimitError
from builder.trace import Event, Step, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from typing_extensions import Unpack

    from builder.engine import Engine

BEGINNING_S = 0.3  # seen: a cancel at once is lost two times of three, one after 0.03 s is not
AGAIN_S = 2.0

Network = Literal["default", "none", "host"]


@dataclass(frozen=True, slots=True)
class Built:
    """A finished image, and the steps that made it."""

    image_id: str
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]


class Options(TypedDict, total=False):
    """How a build is done, beside its file and its arguments.

    Attributes:
        cache_from: an image in a registry whose steps are taken as done; what is built can then serve as one too.
        epoch: the time of the image and its history, in seconds since 1970; no cache key has it, no step sees it.
        labels: in place of what the file says of them.
    """

    network: Network
    no_cache: bool
    epoch: int | None
    labels: Mapping[str, str] | None
    cache_from: str | None


def build(  # noqa: PLR0913 (each is one fact of the build)
    engine: Engine,
    dockerfile: str,
    *,
    arguments: Mapping[str, str],
    watch: Callable[[Event], None],
    context: Path | None = None,
    time_limit_s: float | None = None,
    trace: Trace | None = None,
    **options: Unpack[Options],
) -> Built:
    """Build `dockerfile`; the image has no tag. It is the image that `docker build` makes of the same input.

    Args:
        context: a folder whose content is the build context; our own images have none.
        trace: gets the steps, for whoever wants them of a build that fails, too.

    Raises:
        BuildFailedError: with the step that failed, its exit code and its last lines.
        TimeLimitError: where it took longer than its limit; what was finished stays in the cache.
        EngineError: where the engine itself did not answer or went away.
    """
    build_id, traced = uuid.uuid4().hex, trace or Trace()

    def cancel() -> None:
        _let_it_begin(traced)
        engine.cancel_build(build_id)

    with _archive(dockerfile, context) as body, _before_signals(cancel), _time_limit(time_limit_s, cancel, traced):
        try:
            events = engine.post_build(_parameters(engine, build_id, arguments, options), body)
            image_id = _consume(events, traced, watch)
        except BuildFailedError:
            raise
        except BaseException:
            cancel()
            raise
    return Built(image_id, traced.steps, tuple(traced.warnings))


def _parameters(engine: Engine, build_id: str, arguments: Mapping[str, str], options: Options) -> dict[str, str]:
    """A build's, as the engine takes them."""
    epoch, labels, cache = options.get("epoch"), options.get("labels"), options.get("cache_from")
    inline = {"BUILDKIT_INLINE_CACHE": "1"} if cache else {}
    moment = {} if epoch is None else {"SOURCE_DATE_EPOCH": str(epoch)}
    return {
        "version": "2",  # BuildKit
        "buildid": build_id,
        "buildargs": json.dumps({**engine.proxies, **arguments, **inline, **moment}),
        "networkmode": options.get("network", "default"),
        "nocache": "1" if options.get("no_cache") else "0",
        "rm": "1",
        **({"cachefrom": json.dumps([cache])} if cache else {}),
        **({"labels": json.dumps(dict(labels))} if labels else {}),
    }


@contextlib.contextmanager
def _before_signals(cancel: Callable[[], None]) -> Iterator[None]:
    """Cancel at a signal, before it becomes an exception: that closes the connection at once, which is too early."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return

    def handle(number: int, frame: FrameType | None) -> None:
        cancel()
        earlier = handlers[signal.Signals(number)]
        if callable(earlier):
            earlier(number, frame)
        else:
            signal.signal(number, earlier)
            signal.raise_signal(signal.Signals(number))

    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: earlier for number, earlier in found.items() if earlier is not signal.SIG_IGN}
    for number in handlers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, earlier in handlers.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def _time_limit(seconds: float | None, cancel: Callable[[], None], trace: Trace) -> Iterator[None]:
    """Cancel after so many seconds; again and again, because a cancel between two steps may find neither of them.

    Raises:
        TimeLimitError: in place of the failure that a build ends in when it is cancelled.
    """
    reached, ended = threading.Event(), threading.Event()
    if seconds is None:
        yield
        return

    def stop() -> None:
        reached.set()
        cancel()
        while not ended.wait(AGAIN_S):
            cancel()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        yield
    except BuildFailedError as error:
        if reached.is_set():
            raise _too_long(trace, seconds) from error
        raise
    finally:
        ended.set()
        timer.cancel()


def _too_long(trace: Trace, seconds: float) -> TimeLimitError:
    """Of a step that was cancelled, BuildKit tells an error."""
    now = time.time()
    running = [step for step in trace.steps if step.started and (step.completed is None or step.error)]
    at = " and ".join(f"{step.name} had run for {now - (step.started or now):.0f} s" for step in running)
    message = f"the time limit of {seconds:g} s was reached; {at or 'no step was running'}"
    hint = "what was finished is in the cache: run it again with a longer --time-limit"
    return TimeLimitError(Problem(message, hint=hint))


def _let_it_begin(trace: Trace) -> None:
    """Wait until the process of a step that has just begun is there: a cancel before that is lost, and it runs on."""
    running = [step.started for step in trace.steps if step.started and step.completed is None]
    if running:
        time.sleep(min(BEGINNING_S, max(0.0, max(running) + BEGINNING_S - time.time())))


def _archive(dockerfile: str, context: Path | None) -> io.BytesIO:
    body = io.BytesIO()
    # The engine takes Python's default PAX archive for the text of a Dockerfile.
    with tarfile.open(fileobj=body, mode="w", format=tarfile.GNU_FORMAT) as archive:
        if context:
            archive.add(context, arcname=".", filter=_anonymous)
        entry = tarfile.TarInfo("Dockerfile")
        content = dockerfile.encode()
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    body.seek(0)
    return body


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without its owner: BuildKit's cache key counts that in."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _consume(events: Iterator[dict[str, Any]], trace: Trace, watch: Callable[[Event], None]) -> str:
    image_id = ""
    for event in events:
        error = event.get("errorDetail", {}).get("message") or event.get("error")
        if error:
            raise _failure(str(error), trace)
        if event.get("id") == "moby.buildkit.trace":
            try:
                told = trace.feed(event["aux"])
            except ValueError as unreadable:
                raise EngineError(
                    Problem(str(unreadable), hint="the engine's BuildKit is newer than this tool")
                ) from unreadable
            for line in told:
                watch(line)
        elif event.get("id") == "moby.image.id":
            image_id = event["aux"]["ID"]
    if not image_id:
        raise EngineError(
            Problem(
                "the engine ended the build without an image and without an error",
                hint="build again; if it stays: docker builder prune --all --filter type=regular",
            )
        )
    return image_id


def _failure(message: str, trace: Trace) -> BuildFailedError:
    step = trace.failed(message)
    if step is None:
        return BuildFailedError(Problem(message))
    found = re.search(r"exit code: (\d+)", step.error)
    how = f"exit code {found[1]}" if found else step.error
    lines = "".join(f"\n    {line}" for line in step.last_lines)
    return BuildFailedError(
        Problem(f"step {step.name} failed: {how}{lines}"),
        step=step.name,
        status=int(found[1]) if found else None,
        log=tuple(step.lines),
    )
