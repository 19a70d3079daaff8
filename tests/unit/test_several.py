"""Several images at once: in which order, how many, and what a failure or a Ctrl-C does to the others."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from manifests import REAL, facts_of

from builder import front, manifest, several
from builder.build import Order
from builder.several import Outcome
from builder.trace import Event

REFERENCE = manifest.load(REAL).base.reference
GOOD = 'print(\'{"checks": [], "tag": "a:b", "fixed_tag": "a:b-c"}\')'
BAD = 'print(\'{"state": "error", "text": "error: no\\\\nmore of it"}\'); raise SystemExit(20)'
LONG = 'import time; print(\'{"step": "A", "text": "begun", "state": "note"}\', flush=True); time.sleep(60)'


def order(name: str, target: str = "gfx942") -> Order:
    written = manifest.load(REAL)
    return Order(manifest=written, facts=facts_of(written), gpu_targets=(target,), tag=f"vime:{name}", arguments={})


class Run:
    """A run of programs in place of images."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.watching: Callable[[str], None] = lambda _: None

    def watch(self, order: Order, event: Event) -> None:
        self.told.append((order.tag, str(event)))
        self.watching(event.text)

    def __call__(
        self, programs: Sequence[str], *, jobs: int = 1, fail_fast: bool = False, refused: bool = False
    ) -> list[Outcome]:
        orders = [order(str(number)) for number in range(len(programs))]
        given = {f"vime:{number}": program for number, program in enumerate(programs)}
        return several.run(
            orders,
            lambda order: [sys.executable, "-c", given[order.tag]],
            jobs=jobs,
            fail_fast=fail_fast,
            watch=self.watch,
            refused={REFERENCE: "error: no base"} if refused else {},
        )


@pytest.fixture
def run() -> Run:
    return Run()


def states(outcomes: list[Outcome]) -> list[str]:
    return [outcome.state for outcome in outcomes]


# The order

COMPILES = {"a": "gfx942", "b": "gfx950"}


def test_no_compile_is_run_beside_its_like_and_one_that_is_done_goes_on(tmp_path: Path) -> None:
    """Two machines of one compile, two of another, two at a time: the second of each waits for the first."""
    file = tmp_path / "begun"
    lasting = {"a1": 0.2, "a2": 0.2, "b1": 1.0, "b2": 0.2}
    orders = [order(name, COMPILES[name[0]]) for name in lasting]

    def command(one: Order) -> list[str]:
        name = one.tag.removeprefix("vime:")
        program = f"import time; open({str(file)!r}, 'a').write('{name} '); time.sleep({lasting[name]}); {GOOD}"
        return [sys.executable, "-c", program]

    outcomes = several.run(orders, command, jobs=2, fail_fast=False, watch=Run().watch, refused={})
    assert states(outcomes) == ["built"] * 4
    begun = file.read_text().split()
    assert (sorted(begun[:2]), begun[2:]) == (["a1", "b1"], ["a2", "b2"])


def test_one_at_a_time_the_images_of_one_compile_follow_each_other(run: Run) -> None:
    orders = [order(name, COMPILES[name[0]]) for name in ("a1", "b1", "a2", "b2")]
    command = [sys.executable, "-c", GOOD]
    outcomes = several.run(orders, lambda _: command, jobs=1, fail_fast=False, watch=run.watch, refused={})
    assert [outcome.order.tag for outcome in outcomes] == ["vime:a1", "vime:a2", "vime:b1", "vime:b2"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_so_many_run_at_a_time(run: Run, jobs: int, tmp_path: Path) -> None:
    program = (
        "import os, pathlib, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "mine = folder / str(os.getpid()); mine.touch(); time.sleep(0.3)\n"
        'print(\'{"text": "%d", "step": "", "state": "note"}\' % len(list(folder.iterdir()))); time.sleep(0.3)\n'
        "mine.unlink()"
    )
    assert states(run([program] * 4, jobs=jobs)) == ["built"] * 4
    assert max(int(text) for _, text in run.told) == jobs


# Failures


def test_one_failure_does_not_stop_the_others(run: Run) -> None:
    first, second = run([BAD, GOOD])
    assert (first.state, first.tags, first.error) == ("failed", (), "error: no\nmore of it")
    assert (second.state, second.tags, second.error) == ("built", ("a:b", "a:b-c"), "")
    assert ("vime:0", "error: no\nmore of it") in run.told


def test_a_failure_stops_the_others_where_that_is_asked_for(run: Run) -> None:
    failing = f"import time; time.sleep(1); {BAD}"
    started = time.monotonic()
    assert states(run([LONG, failing, GOOD], jobs=2, fail_fast=True)) == ["stopped", "failed", "not begun"]
    assert time.monotonic() - started < 30


def test_without_its_base_an_image_has_failed_and_nothing_is_run(run: Run) -> None:
    assert [(one.state, one.error) for one in run([LONG, LONG], refused=True)] == [("failed", "error: no base")] * 2
    assert states(run([LONG, LONG], refused=True, fail_fast=True)) == ["failed", "not begun"]


def test_what_a_process_says_that_is_no_event_is_why_it_failed(run: Run) -> None:
    program = "import sys; print('error: first', file=sys.stderr); print('12'); sys.exit(3)"
    (outcome,) = run([program])
    assert sorted(outcome.error.splitlines()) == ["12", "error: first"]
    (silent,) = run(["raise SystemExit(3)"])
    assert silent.error == "its process ended with exit code 3"


def test_an_error_that_comes_as_an_event_and_on_standard_error_is_told_once(run: Run) -> None:
    error = "error: no\nmore of it\n    hint: do"
    said = json.dumps({"state": "error", "text": error})
    program = f"import sys; print({said!r}, flush=True); print({error!r}, file=sys.stderr); sys.exit(20)"
    (outcome,) = run([program])
    assert outcome.error == error
    assert run.told == [("vime:0", error)]


def test_what_a_process_tells_beside_its_data_comes_as_it_is_said_with_its_image(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    program = "import sys; print('git fetch (0.10 s)', file=sys.stderr); print('error: no\\n    hint: do', file=sys.stderr); sys.exit(3)"
    with caplog.at_level("INFO", logger="vime-images"):
        first, second = run([program, GOOD])
    assert caplog.messages == ["vime:0: git fetch (0.10 s)"]
    assert (first.error, second.error) == ("error: no\n    hint: do", "")


def test_an_image_that_failed_its_checks_names_them(run: Run) -> None:
    checks = [{"name": name, "outcome": name, "detail": "seen"} for name in ("failed", "passed", "could not run")]
    program = (
        f"import sys; print({json.dumps(json.dumps({'checks': checks}))}, flush=True); sys.exit('error: 1 of 3 failed')"
    )
    (outcome,) = run([program])
    assert outcome.error == "failed: seen\nerror: 1 of 3 failed"


def test_events_are_told_as_they_come_each_with_its_image(run: Run) -> None:
    said = {"step": "A", "text": "done", "state": "done", "seconds": 1.5, "number": 2, "total": 3, "later": "more"}
    run([f"print({json.dumps(json.dumps(said))})"])
    assert run.told == [("vime:0", "A: done")]


# Ctrl-C


def test_ctrl_c_stops_each_process_once_and_lets_none_begin(run: Run) -> None:
    program = (
        "import json, signal, sys, time\n"
        "def end(*_): print(json.dumps({'state': 'note', 'step': '', 'text': 'told to end'}), flush=True); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print(json.dumps({'state': 'note', 'step': '', 'text': 'begun'}), flush=True); time.sleep(60)\n"
    )
    begun = threading.Event()
    run.watching = lambda text: begun.set() if text == "begun" else None

    def interrupt() -> None:
        begun.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # A shell leaves it ignored for what it starts with `&`, and Python keeps that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run([program, GOOD])
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert [text for _, text in run.told] == ["begun", "told to end"]


@pytest.mark.parametrize(("level", "words"), [("ERROR", ["-q"]), ("INFO", []), ("DEBUG", ["-v"])])
def test_a_process_of_ours_is_as_loud_as_the_one_that_starts_it(
    level: str, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(level, logger="vime-images"):
        assert front.as_loud() == words
