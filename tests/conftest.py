"""What all tests share: a real engine where one is asked for, golden files, and the table of faults."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from catches import Catches
from kills import ALL, Kills
from xdist.scheduler import LoadScopeScheduling

from builder.engine import Engine
from builder.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser
    from xdist.remote import Producer

HERE = Path(__file__).parent
ROOT = HERE.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--need-engine", action="store_true", help="Fail, rather than skip, without an engine or a browser."
    )
    parser.addoption("--update-golden", action="store_true", help="Rewrite the golden files.")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the engine is an engine test: no marker to forget."""
    for item in items:
        if "engine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.engine)


class ByPlace(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Tests with an engine share the images that one process makes; other tests, what their file makes."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "tests/engine" if path.startswith("tests/engine/") else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByPlace:
    return ByPlace(config, log)


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A real engine. All that a test makes carries this run's label, and goes with it."""
    try:
        engine = Engine(owner=f"test-{uuid.uuid4().hex[:8]}")
    except EngineError as error:
        if request.config.getoption("--need-engine"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as environment:
        if "://" in engine.address:  # a copy of the project has no private engine of its own to find
            environment.setenv("DOCKER_HOST", engine.address)
        yield engine
    engine.remove_leftovers()
    engine.close()


@pytest.fixture(scope="session")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """A real browser without a display."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (dear, and few tests want it)

    found = subprocess.run([ROOT / "scripts" / "browser"], capture_output=True, text=True, check=False)
    if found.returncode:
        if request.config.getoption("--need-engine"):
            pytest.fail(found.stderr)
        pytest.skip(found.stderr)
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found.stdout.strip(), args=options)
        yield started
        started.close()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with a file under tests/golden, or write it with --update-golden."""

    def compare(name: str, text: str) -> None:
        path = HERE / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path} differs: make golden, then read the diff"

    return compare


@pytest.fixture(scope="session")
def caught(request: pytest.FixtureRequest) -> Iterator[Catches]:
    """Takes down which stage has caught a fault, or compares it with what docs/faults.md says."""
    catches = Catches(update=request.config.getoption("--update-golden"))
    yield catches
    catches.write()


@pytest.fixture(scope="session")
def killed(request: pytest.FixtureRequest) -> Iterator[Kills]:
    """Kills a command as often as is asked for; `make kills` has what was found written into docs/kills.md."""
    kills = Kills()
    yield kills
    if request.config.getoption("--update-golden") and all(row.kills == ALL for row in kills.rows.values()):
        kills.write()
