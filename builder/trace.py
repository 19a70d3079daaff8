"""BuildKit's progress stream as values: `moby.buildkit.v1.StatusResponse`, base64 in each event.

The message type is described here at run time. Generated code would bind us to one protobuf runtime.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from dataclasses import dataclass
from typing import Any, Literal

from builder.told import plain

LAST_LINES = 40  # of a step's log, shown when it fails
CLIPPED = "[output clipped, log limit"  # BuildKit's words, in the log itself
_PACKAGE = "vime_images.buildkit"
_INT64, _STRING, _BYTES, _BOOL, _MESSAGE = 3, 9, 12, 8, 11
# Field numbers from BuildKit's control.proto; what we do not read is left out, protobuf skips it.
_MESSAGES: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    "Timestamp": {"seconds": (1, _INT64, False), "nanos": (2, 5, False)},
    "Vertex": {
        "digest": (1, _STRING, False),
        "name": (3, _STRING, False),
        "cached": (4, _BOOL, False),
        "started": (5, "Timestamp", False),
        "completed": (6, "Timestamp", False),
        "error": (7, _STRING, False),
    },
    "VertexLog": {"vertex": (1, _STRING, False), "msg": (4, _BYTES, False)},
    "VertexWarning": {"vertex": (1, _STRING, False), "short": (3, _BYTES, False)},
    "StatusResponse": {
        "vertexes": (1, "Vertex", True),
        "logs": (3, "VertexLog", True),
        "warnings": (4, "VertexWarning", True),
    },
}
_STEP = re.compile(
    r"^\[(?:\S+ +)* *(?P<number>\d+)/(?P<total>\d+)\] (?P<instruction>(?:RUN|COPY|ADD|WORKDIR)\b.*)$", re.DOTALL
)
_CACHE = re.compile(r"^importing cache manifest from (\S+)")
_DELIMITER = re.compile(r"<<-?['\"]?(?P<name>[A-Za-z_][A-Za-z0-9_]*)")


@dataclass(slots=True)
class Step:
    """One step of the Dockerfile, as far as the engine has told."""

    digest: str
    number: int  # in the Dockerfile, FROM being 1
    total: int
    name: str  # the delimiter of its heredoc, else the instruction
    cached: bool = False
    started: float | None = None
    completed: float | None = None
    error: str = ""
    log: bytes = b""
    told: int = 0  # bytes of the log that watchers have had

    @property
    def seconds(self) -> float:
        if self.started is None or self.completed is None:
            return 0.0
        return self.completed - self.started

    @property
    def lines(self) -> list[str]:
        """Its log, as far as BuildKit has passed it on."""
        return _lines(self.log)

    @property
    def last_lines(self) -> list[str]:
        return self.lines[-LAST_LINES:]

    @property
    def clipped(self) -> bool:
        """Whether BuildKit has held a part of the log back."""
        return CLIPPED.encode() in self.log

    def take_lines(self, *, whole: bool = True) -> list[str]:
        """The lines that came since the last call; one without its end waits for it, where lines are to be whole."""
        end = max(self.log.rfind(b"\n"), self.log.rfind(b"\r")) + 1 if whole else len(self.log)
        begin, self.told = self.told, max(self.told, end)
        return _lines(self.log[begin : self.told])


State = Literal["note", "started", "line", "cached", "done", "failed", "pull", "push"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, for whoever watches; as text, one calm line."""

    step: str  # of a pull or a push: the layer
    text: str
    state: State = "note"
    seconds: float = 0.0  # that a finished step took
    number: int = 0  # of the step in its Dockerfile, FROM being 1, and how many there are; 0 where it is no step
    total: int = 0
    current: int = 0  # bytes that are done of a layer, and that it has; 0 where nobody knows
    size: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", plain(self.step))  # frozen; engines and registries pass on what others wrote
        object.__setattr__(self, "text", plain(self.text))

    def __str__(self) -> str:
        return f"{self.step}: {self.text}" if self.step else self.text


class Trace:
    """The steps of one build, built up from its stream; a later word about a step replaces the earlier."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._announced: set[tuple[str, str]] = set()
        self.warnings: list[str] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        """The Dockerfile's steps in its order; what BuildKit does around them is left out."""
        return tuple(sorted(self._steps.values(), key=lambda step: step.number))

    def failed(self, message: str) -> Step | None:
        """The step whose error is the build's; a cancelled neighbour has an error too, but another text."""
        candidates = [step for step in self._steps.values() if step.error]
        return next((step for step in candidates if step.error in message), candidates[0] if candidates else None)

    def feed(self, encoded: str) -> list[Event]:
        """What a `moby.buildkit.trace` event tells that is worth a line.

        Raises:
            ValueError: where the event is not what BuildKit sends.
        """
        try:
            status = _read(base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"unreadable progress event: {error}") from error
        events = [event for vertex in status.vertexes for event in self._vertex(vertex)]
        for log in status.logs:
            events += self._log(log)
        self.warnings += [warning.short.decode("utf-8", "replace") for warning in status.warnings]
        return events

    def _vertex(self, vertex: Any) -> list[Event]:  # noqa: ANN401 - a message described at run time
        found = _STEP.match(vertex.name)
        if not found:
            return self._import(vertex)
        instruction = found["instruction"]
        heredoc = _DELIMITER.search(instruction)
        step = self._steps.setdefault(
            vertex.digest,
            Step(vertex.digest, int(found["number"]), int(found["total"]), heredoc["name"] if heredoc else instruction),
        )
        step.cached = vertex.cached
        step.error = vertex.error
        if vertex.HasField("started"):
            step.started = vertex.started.seconds + vertex.started.nanos / 1e9
        if vertex.HasField("completed"):
            step.completed = vertex.completed.seconds + vertex.completed.nanos / 1e9
        return self._announce(step)

    def _import(self, vertex: Any) -> list[Event]:  # noqa: ANN401 - a message described at run time
        """A cache that cannot be had: the build goes on without it, and nothing else would say so."""
        found = _CACHE.match(vertex.name)
        if not (found and vertex.error) or (vertex.digest, vertex.error) in self._announced:
            return []
        self._announced.add((vertex.digest, vertex.error))
        return [Event("", f"nothing is taken from {found[1]}: {vertex.error}")]

    def _announce(self, step: Step) -> list[Event]:
        state, text = self._state(step)
        if state is None or (step.digest, state) in self._announced:
            return []
        self._announced.add((step.digest, state))
        rest = [] if step.completed is None else step.take_lines(whole=False)
        return [*_told(step, rest), Event(step.name, text, state, step.seconds, step.number, step.total)]

    @staticmethod
    def _state(step: Step) -> tuple[State | None, str]:
        if step.error:
            return "failed", "failed"
        if step.completed is not None:
            return ("cached", "cached") if step.cached else ("done", f"done in {step.seconds:.1f} s")
        return ("started", "started") if step.started is not None else (None, "")

    def _log(self, log: Any) -> list[Event]:  # noqa: ANN401 - a message described at run time
        step = self._steps.get(log.vertex)
        if step is None:
            return []
        step.log += log.msg
        return _told(step, step.take_lines(whole=step.completed is None))


def _lines(log: bytes) -> list[str]:
    return [plain(line) for line in log.decode("utf-8", "replace").splitlines()]


def _told(step: Step, lines: list[str]) -> list[Event]:
    return [Event(step.name, line, "line", 0.0, step.number, step.total) for line in lines if line.strip()]


def _read(message: bytes) -> Any:  # noqa: ANN401 (a message described at run time)
    from google.protobuf.message import DecodeError  # noqa: PLC0415 (dear; the engine is at work meanwhile)

    try:
        return _status_response().FromString(message)
    except DecodeError as error:
        raise ValueError(str(error)) from error


@functools.cache
def _status_response() -> Any:  # noqa: ANN401 (a class made at run time)
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 (as above)

    file = descriptor_pb2.FileDescriptorProto(name="vime_images/trace.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            described = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                described.type, described.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"  # type: ignore[assignment]
            else:
                described.type = kind  # type: ignore[assignment]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.StatusResponse"))
