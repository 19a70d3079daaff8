"""A root file system of a few megabytes, made of this machine's own programs; and rehearsals to break."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shutil
import subprocess
import tarfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import private
import pytest
import registries
from table import Table

from builder import build, facts, manifest, standin
from builder.build import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from builder.engine import Engine
    from builder.manifest import Manifest
    from builder.report import Report
    from builder.trace import Event

    Change = Callable[[Path], None]
    Make = Callable[..., Order]

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
FACTS = facts.of(MANIFEST, ROOT)
SECOND = manifest.load(ROOT / "images" / "rocm7.2.yaml")

PROGRAMS = (
    "bash",
    "cat",
    "chmod",
    "cp",
    "echo",
    "env",
    "ls",
    "mkdir",
    "seq",
    "sha256sum",
    "sleep",
    "timeout",
    "touch",
    "true",
    "yes",
)


def pytest_configure(config: pytest.Config) -> None:
    private.needed = config.getoption("--need-engine")


def libraries(program: str) -> set[str]:
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return set(re.findall(r"/\S+", done.stdout))


def root_archive() -> io.BytesIO:
    """A root file system with a shell and a handful of programs, as tar."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        found = {name: shutil.which(name) or pytest.fail(f"this machine has no {name}") for name in PROGRAMS}
        for name, program in found.items():
            archive.add(Path(program).resolve(), f"bin/{name}")
        for library in sorted(set().union(*map(libraries, found.values()))):
            archive.add(Path(library).resolve(), library.lstrip("/"))
        for folder in ("tmp", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
        link = tarfile.TarInfo("bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "bash"
        archive.addfile(link)
    body.seek(0)
    return body


@pytest.fixture(scope="session")
def tiny(engine: Engine) -> str:
    """An image with a shell and a handful of programs; its reference."""
    reference = f"vime-images-test/tiny:{uuid.uuid4().hex[:8]}"
    engine.import_root(root_archive(), reference, ["ENV PATH=/bin"])
    return reference


@pytest.fixture(scope="session")
def _debian(request: pytest.FixtureRequest) -> None:
    """Debian's registry can be had."""
    try:
        registries.program()
    except (OSError, subprocess.SubprocessError) as error:
        if request.config.getoption("--need-engine"):
            pytest.fail(f"no docker-registry: {error}")
        pytest.skip(f"no docker-registry: {error}")


NUMBERS = itertools.count()  # of all orders of a run: each has a tag of its own


def quiet(_: Event) -> None:
    """Watch nothing."""


def orders(
    engine: Engine, folders: pytest.TempPathFactory, written: Manifest, targets: tuple[str, ...]
) -> Iterator[Make]:
    """Orders for rehearsals; a change edits a copy of the stand-ins. What they add to the engine goes with the run."""
    known, made = facts.of(written, ROOT), list[str]()

    def make(
        change: Change | None = None, arguments: Mapping[str, str] | None = None, targets: tuple[str, ...] = targets
    ) -> Order:
        standins = standin.STANDINS
        if change:
            standins = folders.mktemp("changed") / "standins"
            shutil.copytree(standin.STANDINS, standins)
            change(standins)
        ingredients = standin.Ingredients(cache=ROOT / ".cache", standins=standins)
        base = standin.make(engine, written, known, ingredients, quiet)
        tag = f"vime-images-test:{engine.owner}-{written.name}-{next(NUMBERS)}"
        made.extend([tag, *([base.reference] if change else [])])
        return Order(
            manifest=written,
            facts=known,
            gpu_targets=targets,
            tag=tag,
            arguments={"BASE_IMAGE": base.reference, **base.arguments, **(arguments or {})},
            network="none",
        )

    yield make
    for reference in made:
        with contextlib.suppress(Exception):  # one that failed has no tag
            engine.remove_image(reference)


@pytest.fixture(scope="session")
def order(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    yield from orders(engine, tmp_path_factory, MANIFEST, ("gfx942",))


@pytest.fixture(scope="session")
def second_order(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """As `order`, of the image whose base ships vLLM."""
    yield from orders(engine, tmp_path_factory, SECOND, ("gfx950",))


@pytest.fixture(scope="session")
def clean(engine: Engine, order: Make) -> tuple[Order, Report]:
    """A rehearsal with nothing broken."""
    ordered = order()
    return ordered, build.make(engine, ordered, quiet)


@pytest.fixture(scope="session")
def told(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Table]:
    """Takes down what a way to go wrong came to, or compares it with what docs/engines.md says."""
    table = Table(update=request.config.getoption("--update-golden"), engine=engine.version)
    yield table
    if table.update:
        table.write()
