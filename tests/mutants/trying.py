"""A program's tests in processes that have pytest loaded already: first those that have noticed a change near by."""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mutants import Mutant

LONGER = 5  # times what its tests take as it is: one that hangs is noticed too
SHORTEST_LIMIT_S = 10
EVERY = ""  # the test of whatever runs outside of tests, or for more than one of them
# Put into the program as it is, once: each function that is called writes down for which test.
RECORDER = """
def _record(seen={{}}):
    import os, sys, threading
    def called(frame, event, _, own=__file__):
        if event != "call" or frame.f_code.co_filename != own:
            return
        line = os.environ.get("PYTEST_CURRENT_TEST", "") + "\\t" + frame.f_code.co_name + "\\n"
        if line not in seen:
            seen[line] = True
            place = os.open({place!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(place, line.encode())
            os.close(place)
    threading.setprofile(called)
    sys.setprofile(called)
_record()
"""


def recording(text: str, place: Path) -> str:
    """The program with the recorder before its first import."""
    first = next(
        node.lineno
        for node in ast.parse(text).body
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__")
    )
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: first - 1], RECORDER.format(place=str(place)), *lines[first - 1 :]])


@dataclass
class Run:
    """What pytest is told to do, and what it tells: a plugin of it.

    Attributes:
        order: the tests to run, by their rank; none for all.
        told: a file for the name of each test that has ended, whether it failed, and the seconds that it took.
    """

    told: Path
    order: Mapping[str, int] = field(default_factory=dict)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order:
            items[:] = [item for item in items if item.nodeid in self.order]
            items.sort(key=lambda item: self.order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        with self.told.open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\t{report.failed:d}\t{report.duration}\n")


@dataclass
class Trials:
    """The tests of one program in a copy of the project.

    Attributes:
        seconds: what each test takes.
        calling: the tests in which a function runs, by its name.
        noticed: tests that have noticed a change, the last one last.
    """

    root: Path
    program: str
    tests: Sequence[str]
    scratch: Path
    seconds: dict[str, float] = field(default_factory=dict)
    calling: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    noticed: list[str] = field(default_factory=list)
    written: int = 1_000_000_000

    def write(self, text: str) -> None:
        """Change the program; its time differs from that of every earlier text, so no bytecode of one is taken."""
        path = self.root / self.program
        path.write_text(text, encoding="utf-8")
        self.written += 10
        os.utime(path, (self.written, self.written))

    def learn(self, text: str) -> None:
        """See what each test runs; all of them have to pass."""
        place = self.scratch / "called"
        place.touch()
        self.write(recording(text, place))
        if self.fails(Run(self.told)):
            sys.exit(f"{self.program}: its tests fail as it is: {self.failed}")
        for name in self.loaded.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(Exception):  # one that only another module can import
                importlib.import_module(name)
        for line in self.told.read_text(encoding="utf-8").splitlines():
            test, _, seconds = line.split("\t")
            self.seconds[test] = self.seconds.get(test, 0) + float(seconds)
        for line in set(place.read_text(encoding="utf-8").splitlines()):
            current, _, function = line.rpartition("\t")
            test, _, phase = current.rpartition(" ")
            self.calling[function].add(test if phase == "(call)" else EVERY)  # a fixture may serve many

    def notices(self, mutant: Mutant) -> bool:
        """Whether a test fails with that change."""
        self.write(mutant.text)
        near = self.calling.get(mutant.function, {EVERY})
        near = {test for test in self.seconds if test in near or EVERY in near}
        ranks = {test: rank for rank, test in enumerate(self.noticed, 1)}
        order = sorted(near, key=lambda test: (-ranks.get(test, 0), self.seconds[test]))
        limit_s = SHORTEST_LIMIT_S + LONGER * sum(self.seconds[test] for test in near)
        if not self.fails(Run(self.told, {test: rank for rank, test in enumerate(order)}), limit_s):
            return False
        if self.failed in self.seconds:
            self.noticed = [*(test for test in self.noticed if test != self.failed), self.failed]
        return True

    @property
    def told(self) -> Path:
        return self.scratch / "told"

    @property
    def loaded(self) -> Path:
        """The modules of others that the tests load: this process loads them once for all."""
        return self.scratch / "loaded"

    @property
    def failed(self) -> str:
        """The test that failed last; nothing where no test could start."""
        lines = [line.split("\t") for line in self.told.read_text(encoding="utf-8").splitlines()]
        return next((test for test, failed, _ in reversed(lines) if failed == "1"), "")

    def fails(self, run: Run, limit_s: float = 3600) -> bool:
        """Whether a test fails, in a process of its own."""
        self.told.write_text("", encoding="utf-8")
        longest = SHORTEST_LIMIT_S + LONGER * max(self.seconds.values(), default=limit_s)
        child = os.fork()
        if not child:
            os._exit(self._pytest(run, longest))
        ends = time.monotonic() + limit_s
        while time.monotonic() < ends:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status) != 0
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True

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
