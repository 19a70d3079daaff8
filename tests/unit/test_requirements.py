"""What the tool and its tests are made of: each distribution by its version and its hashes, wherever it comes from."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from manifests import ROOT
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WRITTEN = {
    "runtime": [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]],
    **PROJECT["dependency-groups"],
}
INSTALLERS = [
    ROOT / "Makefile",
    *(path for folder in (".ci", ".github/workflows", ".buildkite") for path in sorted((ROOT / folder).iterdir())),
]

every_lock = pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)


def entries(path: Path) -> list[str]:
    """Each requirement of a lock with its hashes, as one line."""
    text = re.sub(r"^#.*\n", "", path.read_text("utf-8"), flags=re.MULTILINE)
    return text.replace("\\\n", "").splitlines()


def pins(path: Path) -> dict[str, str]:
    found = (Requirement(entry.partition(" --hash")[0]) for entry in entries(path))
    return {need.name: str(need.specifier) for need in found}


def test_there_is_a_lock_for_each_set_that_is_written_down() -> None:
    assert {path.stem for path in LOCKS} == set(WRITTEN)


@every_lock
def test_a_lock_holds_what_is_written_down_at_that_version(path: Path) -> None:
    locked = pins(path)
    written = {need.name.lower(): str(need.specifier) for need in map(Requirement, WRITTEN[path.stem])}
    assert {name: locked.get(name) for name in written} == written, "stale: make requirements"


@every_lock
def test_a_lock_has_a_hash_for_everything_and_names_no_place(path: Path) -> None:
    shape = re.compile(r"[a-z0-9-]+==[\w.]+( ; [^-\\]+)?( +--hash=sha256:[0-9a-f]{64})+")
    assert [entry for entry in entries(path) if not shape.fullmatch(entry)] == []
    assert "://" not in path.read_text("utf-8")


def test_what_is_installed_together_is_locked_at_one_version() -> None:
    together = [pins(path) for path in LOCKS if path.stem != "audit"]  # that has a folder of its own
    versions = {(name, version) for locked in together for name, version in locked.items()}
    assert len(versions) == len({name for name, _ in versions})


def test_nothing_is_installed_without_a_hash() -> None:
    lines = [line for path in INSTALLERS for line in path.read_text("utf-8").splitlines()]
    installs = [line for line in lines if re.search(r"(pip3?|uvx?|pipx) .*install|uvx |uv tool", line)]
    assert installs
    own = "--no-index --no-deps --no-build-isolation --editable ."  # this project itself
    assert [line for line in installs if "--require-hashes" not in line and own not in line] == []
