"""The repositories of an image's sources, made of the stand-ins and reached by their addresses; an index beside them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from manifests import REAL, ROOT, changed
from world import Repository, repository, settings

from builder import facts, git, manifest, preflight, standin, stock, wheelhouse
from builder.manifest import Manifest
from builder.report import Check, Report

STANDINS = ROOT / "standins" / "sources"
MANIFEST = manifest.load(REAL)
FACTS = facts.of(MANIFEST, ROOT)


@dataclass(frozen=True)
class World:
    """Repositories of every source, and a manifest that pins them."""

    root: Path
    repositories: dict[str, Repository]
    commits: dict[str, str]

    def manifest(self, *edits: tuple[str, str], **commits: str) -> Manifest:
        pins = self.commits | commits
        return changed(REAL, *((MANIFEST.sources[name].commit, commit) for name, commit in pins.items()), *edits)

    def run(self, written: Manifest | None = None, *, offline: bool = False) -> Report:
        return preflight.run(written or self.manifest(), FACTS, self.root, offline=offline)

    def faults(self, written: Manifest | None = None) -> dict[str, Check]:
        return {check.name: check for check in self.run(written).checks if check.outcome == "failed"}

    def reach(self, packages: Path, environment: pytest.MonkeyPatch) -> None:
        """Lead git and the index there."""
        origins = {name: f"file://{repository.folder}" for name, repository in self.repositories.items()}
        places = {MANIFEST.sources[name].repository: place for name, place in origins.items()}
        environment.setenv("GIT_CONFIG_NOSYSTEM", "1")
        environment.setenv("GIT_CONFIG_GLOBAL", str(settings(places, self.root.parent / "gitconfig")))
        environment.setattr(git, "PAUSE_S", 0)
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
            environment.delenv(name)
        environment.setenv("PIP_CONFIG_FILE", os.devnull)
        environment.setenv("PIP_INDEX_URL", f"{packages.as_uri()}/simple")


def packages(folder: Path) -> Path:
    """An index with what the stand-in base's has."""
    (folder / "files").mkdir()
    for wheel in stock.index(MANIFEST, FACTS, standin.STANDINS):
        wheel.write(folder / "files")
    wheelhouse.write_index(folder)
    return folder


def made(folder: Path, sources: Path = STANDINS) -> World:
    """The world of `sources`, and beside it a project with the local patches."""
    repositories, commits = {}, {}
    for name, source in MANIFEST.sources.items():
        repositories[name] = repository(folder / "origins" / name)
        shutil.copytree(sources / Path(source.checkout).name, repositories[name].folder, dirs_exist_ok=True)
        commits[name] = repositories[name].commit({}, tag=source.tag)
    shutil.copytree(ROOT / "images/patches", folder / "project/images/patches", dirs_exist_ok=True)
    return World(folder / "project", repositories, commits)
