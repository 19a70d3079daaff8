"""Bare git repositories that stand in for the sources' upstreams, reached by the real addresses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from builder.rootfs import run

if TYPE_CHECKING:
    from builder.manifest import Manifest

PLACE = "/opt/standin"  # everything of a stand-in base that a real one has not
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in {"NAME": "stand-in", "EMAIL": "stand-in@example.invalid", "DATE": "2026-01-01T00:00:00Z"}.items()
}


def write(manifest: Manifest, context: Path, standins: Path) -> dict[str, str]:
    """A bare repository for each source, found by its real address; their commits."""
    commits, config = {}, ["[safe]\n\tdirectory = *\n"]
    for name, source in manifest.sources.items():
        address = urlsplit(source.repository)
        place = f"git/{address.netloc}{address.path}"
        tree = standins / "sources" / Path(source.checkout).name
        commits[name] = _write_repository(tree, context / "standin" / place, source.tag)
        config.append(f'[url "file://{PLACE}/{place}"]\n\tinsteadOf = {source.repository}\n')
    (context / "etc" / "gitconfig").write_text("".join(config), encoding="utf-8")
    return commits


def _write_repository(tree: Path, bare: Path, tag: str | None) -> str:
    """A bare repository of `tree`: one commit, and a later one on the branch `next`; the commit of `tree`."""
    environment = os.environ | _IDENTITY | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> str:
        command = ["git", f"--git-dir={bare}", f"--work-tree={tree}", "-c", "core.autocrlf=false", *arguments]
        return run(command, f"git {arguments[0]} failed for {tree.name}", env=environment).strip()

    bare.parent.mkdir(parents=True, exist_ok=True)
    run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(bare)], "git init failed", env=environment)
    git("add", "--all", ".")
    git("commit", "--quiet", "--message", f"Stand-in for {tree.name}")
    if tag:
        git("tag", "--annotate", tag, "--message", tag)
    commit = git("rev-parse", "HEAD")
    git("update-ref", "refs/heads/next", git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "A later commit"))
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    (bare / "index").unlink()
    return commit
