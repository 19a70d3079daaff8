"""Two cold builds of one locked input: the versions of the lock, and what differs between the two, each by name."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from conftest import FACTS, MANIFEST, orders, quiet

from builder import build, locking, made
from builder.build import Order
from builder.engine import Engine
from builder.errors import EngineError
from builder.lists import HOME
from builder.made import Made
from builder.report import Report

# A distribution that is asked for without a version, and one of its versions that no index has but for the lock.
NEWER = {"tqdm": "4.99.0"}
EPOCH = 1_700_000_000
# What differs between two cold builds, and why.
TIMED = {
    "/etc/hostname": "the container's, not the image's",
    r"/opt/[\w-]+/\.git/(index|logs/HEAD)": "when git has written which file",
    r"/opt/vime-image/seal\.json": "when each sealed file was written",
    r"/opt/vime-image/verification\.json": "how long each check took",
}
# Every file of an image: kind, permission, owner, and a digest; of compiled modules without the time of their source,
# and without what uv keeps of a wheel from a folder: when that was written, which is the stand-in base's affair.
LISTING = """
import hashlib, json, os, stat
found = {}
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = sorted({*folders} - {"proc", "sys", "dev"})
    for path in (os.path.join(folder, name) for name in [*folders, *files]):
        about = os.lstat(path)
        content = b""
        if stat.S_ISLNK(about.st_mode):
            content = os.readlink(path).encode()
        elif stat.S_ISREG(about.st_mode):
            content = open(path, "rb").read()
            if path.endswith(".dist-info/uv_cache.json"):
                content = b""
            if path.endswith(".pyc"):
                content = content[:8] + content[12:]
            if path.endswith(".dist-info/RECORD"):
                content = b"".join(line for line in content.splitlines(True) if b"/uv_cache.json," not in line)
        found[path] = [about.st_mode, about.st_uid, about.st_gid, hashlib.blake2b(content).hexdigest()]
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Cold:
    """An image of which every step ran for it."""

    report: Report
    image: Made
    files: dict[str, list[object]]
    labels: dict[str, str]


@pytest.fixture(scope="module")
def locked(engine: Engine, clean: tuple[Order, Report], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Order]:
    """A rehearsal with the lock of another, and one version that only the lock has chosen."""
    lock = locking.of(made.read(engine, clean[0].tag))
    assert NEWER.items().isdisjoint(lock.versions.items())
    held = lock._replace(versions={**lock.versions, **NEWER})
    making = orders(engine, tmp_path_factory, MANIFEST.with_lock(held), ("gfx942",))
    ordered = next(making)()
    yield ordered
    next(making, None)
    with contextlib.suppress(EngineError):
        engine.remove_image(ordered.arguments["BASE_IMAGE"])


@pytest.fixture(scope="module")
def twice(engine: Engine, locked: Order) -> tuple[Cold, Cold]:
    """The same built twice; what the first takes from the cache ran for it, or for an earlier one, once."""

    def cold(ordered: Order) -> Cold:
        report = build.make(engine, ordered, quiet)
        assert not (ordered.no_cache and [step.name for step in report.steps if step.cached])
        with engine.container(report.image_id, [FACTS.python.executable, "-B", "-c", LISTING]) as container:
            code, output = container.wait(), container.output()
        assert code == 0, output[-2000:]
        return Cold(report, made.read(engine, ordered.tag), json.loads(output), engine.labels(report.image_id))

    return cold(locked), cold(replace(locked, no_cache=True, epoch=EPOCH))


def test_a_version_that_the_lock_alone_has_chosen_is_installed_and_locks_again(
    locked: Order, twice: tuple[Cold, Cold]
) -> None:
    assert [locking.of(cold.image) for cold in twice] == [locked.manifest.lock] * 2


def test_labels_and_files_are_the_same_but_for_those_that_have_a_time_in_them(twice: tuple[Cold, Cold]) -> None:
    first, second = twice
    assert first.labels == second.labels
    assert set(first.files) == set(second.files)
    differ = {path for path, about in first.files.items() if about != second.files[path]}
    assert {path for path in differ if not any(re.fullmatch(pattern, path) for pattern in TIMED)} == set()
    unused = {pattern for pattern in TIMED if not any(re.fullmatch(pattern, path) for path in differ)}
    assert unused == set(), "what no longer differs has no reason to stand there"


def test_what_differs_in_the_files_of_ours_is_a_time(twice: tuple[Cold, Cold]) -> None:
    seals, outcomes = [], []
    for cold in twice:
        seal = json.loads(cold.image.files[f"{HOME}/seal.json"])
        for entry in seal["distributions"].values():
            entry["files"] = [file[:2] for file in entry["files"]]
        seals.append(seal)
        outcomes.append(cold.image.checks)
    assert seals[0] == seals[1]
    assert outcomes[0] == outcomes[1]


def test_the_image_bears_the_time_that_it_was_given_and_no_other_pins(engine: Engine, twice: tuple[Cold, Cold]) -> None:
    created = [engine.api.inspect_image(cold.report.image_id)["Created"] for cold in twice]  # type: ignore[no-untyped-call]
    assert created[1] == "2023-11-14T22:13:20Z" != created[0]
    assert twice[1].report.arguments == twice[0].report.arguments
