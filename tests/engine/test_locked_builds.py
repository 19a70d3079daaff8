"""Two cold builds of one locked input: the versions of the lock, and what differs between the two, each by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from conftest import FACTS, MANIFEST, orders, quiet

from builder import build, locking, made
from builder.build import Order
from builder.engine import Engine
from builder.made import Made
from builder.report import Report

# A distribution that is asked for without a version, and one of its versions that no index has but for the lock.
NEWER = {"tqdm": "4.99.0"}
EPOCH = 1_700_000_000
# Every file of an image: kind, permission, owner, and a digest; of compiled modules without the time of their source.
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
            if path.endswith(".pyc"):
                content = content[:8] + content[12:]
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
    held = replace(lock, versions={**lock.versions, **NEWER})
    making = orders(engine, tmp_path_factory, MANIFEST.with_lock(held), ("gfx942",))
    ordered = next(making)()
    yield ordered
    next(making, None)
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


def versions(image: Made) -> dict[str, str]:
    return {entry["name"]: entry["version"] for plan in image.plans.values() for entry in plan["distributions"]}


def test_dump(twice):
    a, b = twice
    print(len(a.files), len(b.files))
    print("ONLY", sorted({*a.files} ^ {*b.files}))
    for p in sorted({*a.files} & {*b.files}):
        if a.files[p] != b.files[p]:
            print("DIFF", p, a.files[p][:3], b.files[p][:3])
    print(a.labels == b.labels, versions(a.image) == versions(b.image), versions(a.image)["tqdm"])
    print([s.name for s in a.report.steps if s.cached])
    assert 0
