"""BuildKit's progress, from real messages."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder import trace
from builder.trace import Trace

DIGEST = "sha256:1"


def event(**vertex: object) -> str:
    """One encoded message with one vertex; times are in seconds."""
    message = trace._status_response()()  # noqa: SLF001 - the same description, the other way round
    if "log" in vertex:
        message.logs.add(vertex=DIGEST, msg=vertex["log"])
        return base64.b64encode(message.SerializeToString()).decode()
    added = message.vertexes.add(digest=vertex.get("digest", DIGEST), name=vertex["name"])
    for key in ("started", "completed"):
        if key in vertex:
            getattr(added, key).seconds = vertex[key]
    added.cached = bool(vertex.get("cached"))
    added.error = str(vertex.get("error", ""))
    return base64.b64encode(message.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("[2/3] RUN <<'FETCH' (git init...)", "FETCH"),
        ("[ 2/28] RUN <<'FETCH' (git init...)", "FETCH"),
        ("[stage-0  2/28] RUN --mount=type=cache,target=/c <<'FETCH' (git...)", "FETCH"),
        ("[stage-0 12/28] COPY <<'SEAL_PY' /seal.py", "SEAL_PY"),
        ("[3/3] RUN --mount=type=tmpfs,target=/tmp true", "RUN --mount=type=tmpfs,target=/tmp true"),
        ("[3/3] WORKDIR /opt", "WORKDIR /opt"),
    ],
)
def test_a_step_is_named_by_its_heredoc_or_its_instruction(name: str, step: str) -> None:
    found = Trace()
    found.feed(event(name=name))
    assert [step.name for step in found.steps] == [step]


@pytest.mark.parametrize(
    "name",
    ["[internal] load build definition", "[1/3] FROM debian:12", "exporting to image", "[internal] load .dockerignore"],
)
def test_what_buildkit_does_around_the_steps_is_no_step(name: str) -> None:
    found = Trace()
    assert (found.feed(event(name=name, started=1)), found.steps) == ([], ())


def test_steps_come_in_the_order_of_the_file() -> None:
    found = Trace()
    found.feed(event(name="[3/3] RUN <<'LATE' (x)", digest="sha256:a"))
    found.feed(event(name="[2/3] RUN <<'EARLY' (x)", digest="sha256:b"))
    assert [step.name for step in found.steps] == ["EARLY", "LATE"]


def test_each_state_is_told_once() -> None:
    found, name = Trace(), "[2/3] RUN <<'STEP' (x)"
    told = [
        found.feed(event(name=name, **times))
        for times in ({}, {"started": 5}, {"started": 5}, {"started": 5, "completed": 7})
    ]
    assert [[str(line) for line in lines] for lines in told] == [[], ["STEP: started"], [], ["STEP: done in 2.0 s"]]


def test_a_cached_step_says_so() -> None:
    found = Trace()
    (line,) = found.feed(event(name="[2/3] RUN <<'STEP' (x)", started=5, completed=5, cached=True))
    assert (str(line), found.steps[0].cached) == ("STEP: cached", True)


def test_the_log_is_exact_and_its_last_lines_are_kept() -> None:
    found = Trace()
    found.feed(event(name="[2/3] RUN <<'STEP' (x)", started=5))
    lines = found.feed(event(log=b"one\n\xff two\n"))
    assert [str(line) for line in lines] == ["STEP: one", "STEP: \ufffd two"]
    assert found.steps[0].log == b"one\n\xff two\n"
    found.feed(event(log=b"".join(b"%d\n" % number for number in range(100))))
    assert found.steps[0].last_lines == [str(number) for number in range(60, 100)]


def test_what_a_build_writes_does_not_steer_the_terminal() -> None:
    found = Trace()
    found.feed(event(name="[2/3] RUN <<'STEP' (x)", started=5))
    (line,) = found.feed(event(log=b"\x1b[31mred\x1b[0m\x07 \x1b[2Jtext\n"))
    assert line.text == "red text"
    assert found.steps[0].last_lines == ["red text"]


def test_the_failed_step_is_the_one_that_the_engine_blames_and_not_its_cancelled_neighbour() -> None:
    found = Trace()
    found.feed(event(name="[2/3] RUN <<'OTHER' (x)", digest="sha256:a", error="exit code: 137: context canceled"))
    found.feed(event(name="[3/3] RUN <<'GUILTY' (x)", digest="sha256:b", error="did not complete: exit code: 7"))
    step = found.failed("failed to solve: did not complete: exit code: 7")
    assert step
    assert step.name == "GUILTY"


@given(st.binary(max_size=200))
def test_a_torn_message_is_a_value_error_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        Trace().feed(base64.b64encode(data).decode())


def test_what_is_no_base64_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="unreadable progress event"):
        Trace().feed("not base64!")
