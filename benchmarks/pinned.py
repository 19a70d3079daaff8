"""A copy of the project that pins repositories of this machine, made of stand-ins, and how its commands reach them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

import origins  # noqa: E402 (the path comes first)
from origins import MANIFEST  # noqa: E402
from world import settings  # noqa: E402

from builder import standin  # noqa: E402


def reached(world: Path, packages: Path, standins: Path = standin.STANDINS) -> dict[str, str]:
    """Make repositories of the stand-ins and pin them in `world`/project; the environment that leads to them.

    Args:
        packages: the folder of an index.
    """
    made = origins.made(world, standins / "sources")
    for path in (world / "project/images").rglob("*.yaml"):
        text = path.read_text("utf-8")
        for name, commit in made.commits.items():
            text = text.replace(MANIFEST.sources[name].commit, commit)
        path.write_text(text, "utf-8")
    places = {MANIFEST.sources[name].repository: f"file://{one.folder}" for name, one in made.repositories.items()}
    return {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(settings(places, world / "gitconfig")),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": f"{packages.as_uri()}/simple",
    }


def changed(world: Path, change: object) -> Path:
    """The stand-ins as a fault leaves them, in `world`."""
    standins = world / "standins"
    shutil.copytree(standin.STANDINS, standins)
    if callable(change):
        change(standins)
    return standins
