"""A copy of this project that a test may change, and its commands as another process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from manifests import ROOT

from builder import errors


@dataclass(frozen=True)
class Project:
    """A copy of this project that a test may change."""

    root: Path

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """One command, with no engine to be found; whatever happens, its user sees no traceback."""
        environment = os.environ | {"PYTHONPATH": str(self.root), "DOCKER_HOST": "unix:///nowhere.sock"}
        command = [sys.executable, "-m", "builder", *arguments]
        done = subprocess.run(
            command, cwd=cwd or self.root, env=environment, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr
        return done

    def refusal(self, kind: type[errors.BuilderError], *arguments: str) -> str:
        """What the command says when it refuses with that kind of error, and nothing else."""
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (kind.exit_code, "")
        return done.stderr

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new, 1), encoding="utf-8")


def copied(folder: Path) -> Project:
    root = folder / "project"
    for name in ("builder", "dockerfiles", "images", "templates"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return Project(root)
