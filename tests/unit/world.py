"""A world of local repositories, reached by the real addresses: what git itself calls `insteadOf`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in {"NAME": "test", "EMAIL": "test@example.invalid", "DATE": "2026-01-01T00:00:00Z"}.items()
}


@dataclass(frozen=True)
class Repository:
    """A repository with a work tree."""

    folder: Path

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.folder), *arguments]
        environment = os.environ | IDENTITY | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    def commit(self, files: Mapping[str, str | None], tag: str | None = None) -> str:
        """A commit with those files (None: without it), and an annotated tag."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_bytes(text.encode())
        self.git("add", "--all", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a change")
        if tag:
            self.git("tag", "--annotate", "--force", tag, "--message", tag)
        return self.git("rev-parse", "HEAD")


def repository(folder: Path) -> Repository:
    folder.mkdir(parents=True)
    made = Repository(folder)
    made.git("init", "--quiet", "--initial-branch=main")
    made.git("config", "uploadpack.allowAnySHA1InWant", "true")
    made.git("config", "uploadpack.allowFilter", "true")
    return made


def settings(places: Mapping[str, Path | str], file: Path, extra: str = "") -> Path:
    """A git configuration that leads each address to its place."""
    lines = [f'[url "{place}"]\n\tinsteadOf = {address}\n' for address, place in places.items()]
    file.write_text(f"[safe]\n\tdirectory = *\n{extra}{''.join(lines)}", encoding="utf-8")
    return file
