"""BuildKit's progress stream: real messages in, lines for whoever watches out."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from builder import trace
from builder.trace import Trace

bounded = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
DIGEST = "sha256:1"
CANCELLED = "context canceled"


def vertex(
    name: str = "[ 2/28] RUN <<'SEAL_BASE' (python seal.py)", digest: str = DIGEST, **fields: Any
) -> dict[str, Any]:
    return {"digest": digest, "name": name, **fields}


def at(seconds: int, nanos: int = 0) -> dict[str, int]:
    return {"seconds": seconds, "nanos": nanos}


def encoded(*vertexes: dict[str, Any], **lists: list[dict[str, Any]]) -> str:
    """An event as the engine sends it."""
    status = trace._status_response()(vertexes=list(vertexes), **lists)  # noqa: SLF001 - the one description of the message
    return base64.b64encode(status.SerializeToString()).decode()


def log(text: str | bytes, digest: str = DIGEST) -> str:
    return encoded(logs=[{"vertex": digest, "msg": text.encode() if isinstance(text, str) else text}])


def lines(told: Trace, *events: str) -> list[str]:
    return [str(line) for event in events for line in told.feed(event)]


@pytest.mark.parametrize(
    ("name", "number", "step"),
    [
        ("[ 2/28] RUN <<'SEAL_BASE' (python seal.py create...)", 2, "SEAL_BASE"),
        ("[2/4] RUN <<'SEAL_BASE'", 2, "SEAL_BASE"),
        ("[12/28] RUN <<'SEAL_BASE'", 12, "SEAL_BASE"),
        ("[128/130] RUN <<'SEAL_BASE'", 128, "SEAL_BASE"),
        ("[stage-0  2/4] RUN <<'SEAL_BASE'", 2, "SEAL_BASE"),
        ("[stage-0 12/28] RUN <<'SEAL_BASE'", 12, "SEAL_BASE"),
        ("[linux/amd64 stage-0 12/28] RUN <<'SEAL_BASE'", 12, "SEAL_BASE"),
        (
            "[ 7/28] RUN --mount=type=cache,target=/root/.cache/ccache <<'BUILD_VLLM' (cd /opt/vllm\nmake)",
            7,
            "BUILD_VLLM",
        ),
        ("[ 3/28] COPY <<'SEAL_PY' /opt/vime-image/bin/seal.py", 3, "SEAL_PY"),
        ('[ 3/28] COPY <<-"SEAL_PY" /opt/x', 3, "SEAL_PY"),
        ("[ 3/28] RUN <<SEAL_PY", 3, "SEAL_PY"),
        ("[ 2/28] RUN --mount=type=tmpfs,target=/tmp true", 2, "RUN --mount=type=tmpfs,target=/tmp true"),
        ("[28/28] WORKDIR /opt/vime", 28, "WORKDIR /opt/vime"),
    ],
)
def test_a_step_is_called_by_its_heredoc_else_by_its_instruction(name: str, number: int, step: str) -> None:
    told = Trace()
    told.feed(encoded(vertex(name)))
    assert [(found.number, found.name) for found in told.steps] == [(number, step)]


@pytest.mark.parametrize(
    "name",
    [
        "[internal] load build definition from Dockerfile",
        "[internal] load metadata for docker.io/rocm/primus:v26.4",
        "[auth] rocm/primus:pull token for registry-1.docker.io",
        "[ 1/28] FROM docker.io/rocm/primus:v26.4@sha256:8c8e",
        "exporting to image",
        "preparing inline document",
        "resolve image config for docker.io/x",
        "[ 2/28] RUNNING <<'X'",
        "",
    ],
)
def test_what_buildkit_does_around_the_steps_is_left_out(name: str) -> None:
    told = Trace()
    events = [
        encoded(vertex(name, started=at(1))),
        log("resolving"),
        encoded(vertex(name, started=at(1), completed=at(2))),
    ]
    assert lines(told, *events) == []
    assert told.steps == ()


def test_a_cache_that_cannot_be_had_is_told_once() -> None:
    told = Trace()
    name = "importing cache manifest from localhost:5000/vime:x"
    missing = encoded(vertex(name, started=at(1), completed=at(2), error="not found"))
    assert lines(told, encoded(vertex(name, started=at(1))), missing, missing) == [
        "nothing is taken from localhost:5000/vime:x: not found"
    ]


def test_steps_stand_in_the_order_of_the_dockerfile() -> None:
    told = Trace()
    for number in (11, 2, 10, 28, 9, 1):
        told.feed(encoded(vertex(f"[{number:2}/28] RUN <<'STEP_{number}'", f"sha256:{number}")))
    assert [step.name for step in told.steps] == [f"STEP_{number}" for number in (1, 2, 9, 10, 11, 28)]


def test_each_turn_of_a_step_is_announced_once() -> None:
    told = Trace()
    waiting, started = encoded(vertex()), encoded(vertex(started=at(100)))
    done = encoded(vertex(started=at(100), completed=at(102, 500_000_000)))
    assert lines(told, waiting, started, started, waiting) == ["SEAL_BASE: started"]
    assert lines(told, done, done, done) == ["SEAL_BASE: done in 2.5 s"]
    assert told.steps[0].seconds == 2.5


def test_a_cached_step_is_no_finished_one() -> None:
    told = Trace()
    cached = encoded(vertex(started=at(100), completed=at(100), cached=True))
    assert lines(told, cached, cached) == ["SEAL_BASE: cached"]
    assert (told.steps[0].cached, told.steps[0].seconds) == (True, 0.0)


def test_a_step_without_an_end_took_no_time() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(100))))
    assert told.steps[0].seconds == 0.0


def test_a_failed_step_is_announced_once_and_keeps_its_log() -> None:
    told = Trace()
    error = 'process "/bin/bash -euo pipefail -c ..." did not complete successfully: exit code: 7'
    failed = encoded(vertex(started=at(1), completed=at(2), error=error))
    assert lines(told, encoded(vertex(started=at(1))), log("torch was replaced\n"), failed, failed) == [
        "SEAL_BASE: started",
        "SEAL_BASE: torch was replaced",
        "SEAL_BASE: failed",
    ]
    step = told.failed(f"failed to solve: {error}")
    assert step is not None
    assert (step.name, step.error, step.last_lines) == ("SEAL_BASE", error, ["torch was replaced"])


@pytest.mark.parametrize("first", ["cancelled", "failed"])
def test_a_cancelled_neighbour_is_not_to_blame(first: str) -> None:
    told = Trace()
    error = "process did not complete successfully: exit code: 1"
    events = {
        "cancelled": encoded(
            vertex("[ 3/28] RUN <<'NEIGHBOUR'", "sha256:3", started=at(1), completed=at(2), error=CANCELLED)
        ),
        "failed": encoded(vertex("[ 4/28] RUN <<'CULPRIT'", "sha256:4", started=at(1), completed=at(2), error=error)),
    }
    for event in sorted(events, key=lambda name: name != first):
        told.feed(events[event])
    step = told.failed(f"failed to solve: {error}")
    assert step is not None
    assert step.name == "CULPRIT"


def test_no_step_is_to_blame_where_none_has_an_error() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(1))))
    assert told.failed("failed to solve: no space left on device") is None


def test_the_lines_of_a_log_are_told_with_their_step_and_kept_whole() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(1))))
    assert lines(told, log("[1/9] compiling\n\n  \n"), log(b"caf\xc3\xa9 \xff\n")) == [
        "SEAL_BASE: [1/9] compiling",
        "SEAL_BASE: caf\u00e9 \ufffd",
    ]
    assert told.steps[0].log == b"[1/9] compiling\n\n  \ncaf\xc3\xa9 \xff\n"


def test_what_a_build_writes_does_not_steer_the_terminal() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(1))))
    assert lines(told, log(b"\x1b[31mred\x1b[0m\x07 \x1b[2Jtext\n")) == ["SEAL_BASE: red text"]
    assert told.steps[0].last_lines == ["red text"]


def test_a_line_that_comes_in_pieces_is_whole_in_the_last_lines() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(1))))
    lines(told, log("first\nsec"), log("ond\n"))
    assert told.steps[0].last_lines == ["first", "second"]


def test_a_line_that_comes_in_pieces_is_told_once_and_whole() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(1))))
    assert lines(told, log("first\nsec"), log(b"ond caf\xc3"), log(b"\xa9\nrest")) == [
        "SEAL_BASE: first",
        "SEAL_BASE: second caf\u00e9",
    ]
    assert lines(told, encoded(vertex(started=at(1), completed=at(2)))) == [
        "SEAL_BASE: rest",
        "SEAL_BASE: done in 1.0 s",
    ]


def test_what_comes_after_the_end_of_a_step_is_told_too() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(1), completed=at(2))))
    assert lines(told, log("late")) == ["SEAL_BASE: late"]


def test_an_event_says_where_its_step_stands_among_all() -> None:
    event = Trace().feed(encoded(vertex(started=at(1))))[0]
    assert (event.state, event.number, event.total) == ("started", 2, 28)


def test_a_clipped_log_is_known_to_be_one() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(1))))
    told.feed(log("a\n"))
    assert not told.steps[0].clipped
    told.feed(log("[output clipped, log limit 2MiB reached]\n"))
    assert told.steps[0].clipped


def test_only_the_last_lines_are_shown() -> None:
    told = Trace()
    told.feed(encoded(vertex(started=at(1))))
    told.feed(log("".join(f"line {number}\n" for number in range(100))))
    assert told.steps[0].last_lines == [f"line {number}" for number in range(100 - trace.LAST_LINES, 100)]


def test_steps_and_their_logs_may_come_in_one_event() -> None:
    told = Trace()
    both = encoded(vertex(started=at(1)), logs=[{"vertex": DIGEST, "msg": b"hello\n"}])
    assert lines(told, both) == ["SEAL_BASE: started", "SEAL_BASE: hello"]


def test_warnings_are_collected() -> None:
    told = Trace()
    assert lines(told, encoded(warnings=[{"vertex": DIGEST, "short": b"JSONArgsRecommended"}])) == []
    assert told.warnings == ["JSONArgsRecommended"]


def test_an_event_of_no_step_is_told_without_one() -> None:
    assert str(trace.Event("", "pulling")) == "pulling"


def test_fields_that_a_newer_buildkit_adds_are_skipped() -> None:
    raw = base64.b64decode(encoded(vertex(started=at(1)))) + b"\xaa\x06\x03new"  # field 101
    assert lines(Trace(), base64.b64encode(raw).decode()) == ["SEAL_BASE: started"]


# Input that BuildKit never sends


def assert_told_or_refused(event: str) -> None:
    told = Trace()
    try:
        told.feed(event)
    except ValueError:
        return
    assert all(step.name for step in told.steps)


@bounded
@given(st.text())
@example("\u00e9")
@example("AAA")
def test_any_text_is_read_or_refused(text: str) -> None:
    assert_told_or_refused(text)


@bounded
@given(st.binary())
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    assert_told_or_refused(base64.b64encode(content).decode())


@bounded
@given(st.data())
def test_a_damaged_event_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(
        base64.b64decode(encoded(vertex(started=at(1), error="x"), logs=[{"vertex": DIGEST, "msg": b"y"}]))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(1, len(whole))) :]
    assert_told_or_refused(base64.b64encode(bytes(whole)).decode())


def test_a_refusal_says_what_was_unreadable() -> None:
    with pytest.raises(ValueError, match="unreadable progress event"):
        Trace().feed("not base64")
