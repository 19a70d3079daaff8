"""A program's tests in processes that have pytest loaded already: those in which the changed line runs, quick ones first."""

from __future__ import annotations

import ast
import contextlib
import enum
import importlib
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mutants import Mutant

LONGER = 5  # times what its tests take as it is: then they are said to hang
SHORTEST_LIMIT_S = 20
EVERY = ""  # the test of whatever runs outside of tests, or for more than one of them
# Put into the program as it is, once: each line that runs is written down with its test. It takes no line of its own.
RECORDER = """
def _record(own, seen=set()):
    import os, sys, threading
    def ran(frame, event, _):
        if frame.f_code.co_filename != own:
            return None
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        if not test:
            with open({now!r}) as now:
                test = now.read()
        line = test.rpartition(" ")[0] + "\\t" + str(frame.f_lineno) + "\\n"
        if line not in seen:
            seen.add(line)
            place = os.open({ran!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(place, line.encode())
            os.close(place)
        return ran
    threading.settrace(ran)
    sys.settrace(ran)
    sys._getframe(2).f_trace = ran
_record(__file__)
"""


class Outcome(enum.Enum):
    """What became of a change; only a test that failed has noticed it."""

    FAILED = "a test failed"
    BROKEN = "no test could start"
    HUNG = "a test did not end"
    SURVIVED = "all tests passed"


def recording(text: str, ran: Path, now: Path) -> str:
    """The program with the recorder before its first import."""
    first = next(
        node.lineno
        for node in ast.parse(text).body
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__")
    )
    lines = text.splitlines(keepends=True)
    recorder = RECORDER.format(ran=str(ran), now=str(now))
    return "".join([*lines[: first - 1], f"exec({recorder!r}); ", *lines[first - 1 :]])


def lines_of(text: str, mutant: Mutant) -> range:
    """The lines of the statement that has it, without those that stand in it; a tuple of constants runs in its first."""
    *_, node = sorted(
        (
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.stmt) and node.lineno <= mutant.line and mutant.end <= (node.end_lineno or 0)
        ),
        key=lambda node: node.lineno,
    )
    body = getattr(node, "body", None)
    return range(node.lineno, max(node.lineno + 1, body[0].lineno) if body else (node.end_lineno or 0) + 1)


def naming(text: str, line: int) -> set[int]:
    """The lines that name what the module's statement at `line` makes."""
    tree = ast.parse(text)
    made = {
        name.id
        for node in tree.body
        if node.lineno <= line <= (node.end_lineno or 0)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    return {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in made}


@dataclass(eq=False)
class Run:
    """What pytest is told to do, and what it tells: a plugin of it, which has to have a hash.

    Attributes:
        order: the tests to run, by their rank; none for all.
        told: a file for the name of each test that has ended, whether it failed or hung, and the seconds that it took.
        now: a file for the name of the test that is being called, for programs that do not have it from their environment.
    """

    told: Path
    now: Path
    order: Mapping[str, int] = field(default_factory=dict)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order:
            items[:] = [item for item in items if item.nodeid in self.order]
            items.sort(key=lambda item: self.order[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self.now.write_text(os.environ["PYTEST_CURRENT_TEST"], encoding="utf-8")
        try:
            return (yield)
        finally:
            self.now.write_text("", encoding="utf-8")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        """What a shared fixture runs is no single test's."""
        with pytest.MonkeyPatch.context() as environment:
            if fixturedef.scope != "function":
                environment.delenv("PYTEST_CURRENT_TEST", raising=False)
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        how = "hung" if "from pytest-timeout" in report.longreprtext else "failed" if report.failed else "passed"
        with self.told.open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\t{how}\t{report.duration}\n")


@dataclass
class Trials:
    """The tests of one program in a copy of the project.

    Attributes:
        seconds: what each test takes.
        running: the tests in which a line runs, by its number.
        noticed: how many changes each test has noticed.
    """

    root: Path
    program: str
    tests: Sequence[str]
    scratch: Path
    text: str
    seconds: dict[str, float] = field(default_factory=dict)
    running: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    noticed: Counter[str] = field(default_factory=Counter)
    written: int = 1_000_000_000

    def write(self, text: str) -> None:
        """Change the program; its time differs from that of every earlier text, so no bytecode of one is taken."""
        path = self.root / self.program
        path.write_text(text, encoding="utf-8")
        self.written += 10
        os.utime(path, (self.written, self.written))

    def learn(self) -> None:
        """See what each test runs; all of them have to pass."""
        ran = self.scratch / "ran"
        ran.touch()
        self.now.touch()
        self.write(recording(self.text, ran, self.now))
        if (found := self.outcome({})) is not Outcome.SURVIVED:
            sys.exit(f"{self.program}, as it is: {found.value}: {self.failed}")
        for name in self.loaded.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(Exception):  # one that only another module can import
                importlib.import_module(name)
        for line in self.told.read_text(encoding="utf-8").splitlines():
            test, _, seconds = line.split("\t")
            self.seconds[test] = self.seconds.get(test, 0) + float(seconds)
        for line in set(ran.read_text(encoding="utf-8").splitlines()):
            test, _, number = line.rpartition("\t")
            self.running[int(number)].add(test)

    def asked(self, mutant: Mutant) -> list[str]:
        """The tests that can notice a change, those first that have noticed more in less time."""
        near = set[str]().union(*(self.running[line] for line in lines_of(self.text, mutant)))
        first = near
        if mutant.function == "module":
            first = set[str]().union(*(self.running[line] for line in naming(self.text, mutant.line)))
        return sorted(
            self.seconds if EVERY in near else near & set(self.seconds),
            key=lambda test: (test not in first, self.seconds[test] / (1 + self.noticed[test])),
        )

    def tried(self, mutant: Mutant) -> Outcome:
        """What becomes of a change."""
        if not (tests := self.asked(mutant)):
            return Outcome.SURVIVED
        self.write(mutant.text)
        limit_s = SHORTEST_LIMIT_S + LONGER * sum(self.seconds[test] for test in tests)
        found = self.outcome({test: rank for rank, test in enumerate(tests)}, limit_s)
        if found is Outcome.FAILED:
            self.noticed[self.failed] += 1
        return found

    @property
    def told(self) -> Path:
        return self.scratch / "told"

    @property
    def now(self) -> Path:
        return self.scratch / "now"

    @property
    def loaded(self) -> Path:
        """The modules of others that the tests load: this process loads them once for all."""
        return self.scratch / "loaded"

    @property
    def failed(self) -> str:
        """The test that failed last; nothing where no test could start."""
        lines = [line.split("\t") for line in self.told.read_text(encoding="utf-8").splitlines()]
        return next((test for test, how, _ in reversed(lines) if how != "passed"), "")

    def outcome(self, order: Mapping[str, int], limit_s: float = 3600) -> Outcome:
        """What pytest comes to with these tests, or all of them, in a process of its own."""
        self.told.write_text("", encoding="utf-8")
        longest = SHORTEST_LIMIT_S + LONGER * max(self.seconds.values(), default=limit_s)
        child = os.fork()
        if not child:
            os._exit(self._pytest(Run(self.told, self.now, order), longest))
        found, status, ends = 0, 0, time.monotonic() + limit_s
        while not found and time.monotonic() < ends:
            time.sleep(0.01)
            found, status = os.waitpid(child, os.WNOHANG)
        with contextlib.suppress(ProcessLookupError):  # also what the tests have left behind
            os.killpg(child, signal.SIGKILL)
        if not found:
            os.waitpid(child, 0)
            return Outcome.HUNG
        code = os.waitstatus_to_exitcode(status)
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return Outcome.SURVIVED
        ends_of = [line.split("\t")[1] for line in self.told.read_text(encoding="utf-8").splitlines()]
        if "hung" in ends_of:
            return Outcome.HUNG
        return Outcome.FAILED if code == pytest.ExitCode.TESTS_FAILED and "failed" in ends_of else Outcome.BROKEN

    def _pytest(self, run: Run, longest: float) -> int:
        os.setsid()
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        os.chdir(self.root)
        theirs = str(Path(__file__).parents[1])
        sys.path[:] = [str(self.root), *(path for path in sys.path if not path.startswith(theirs))]
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not engine", f"--timeout={longest:.0f}"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # its plugins are loaded already
        code = int(pytest.main([*options, *self.tests], plugins=[run]))
        files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
        names = [name for name, file in files.items() if file and not file.startswith(str(self.root))]
        self.loaded.write_text("\n".join(names), encoding="utf-8")
        return code
