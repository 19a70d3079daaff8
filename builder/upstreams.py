"""Bare git repositories that stand in for the sources' upstreams, reached by the real addresses."""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from builder.rootfs import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.manifest import Manifest

PLACE = "/opt/standin"  # everything of a stand-in base that a real one has not
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in {"NAME": "stand-in", "EMAIL": "stand-in@example.invalid", "DATE": "2026-01-01T00:00:00Z"}.items()
}


def write(manifest: Manifest, context: Path, standins: Path) -> dict[str, str]:
    """A bare repository for each source that is fetched, found by its real address; their commits."""
    addresses: dict[str, str] = {}
    commits = {}
    for source in manifest.fetched:
        tree = standins / "sources" / Path(source.checkout).name
        commits[source.name] = _write(tree, source.repository, source.tag, context, addresses)
    config = "".join(f'[url "file://{PLACE}/{place}"]\n\tinsteadOf = {to}\n' for to, place in addresses.items())
    # Git takes submodules from no file unless told to.
    text = f'[safe]\n\tdirectory = *\n[protocol "file"]\n\tallow = always\n{config}'
    (context / "etc" / "gitconfig").write_text(text, encoding="utf-8")
    return commits


def _write(tree: Path, address: str, tag: str | None, context: Path, addresses: dict[str, str]) -> str:
    """The repository of `tree` at its address, and before it those of its submodules; its commit."""
    where = urlsplit(address)
    addresses[address] = f"git/{where.netloc}{where.path}"
    links = {}
    if (tree / ".gitmodules").is_file():
        modules = configparser.ConfigParser()
        modules.read_string(re.sub(r"^\s+", "", (tree / ".gitmodules").read_text(encoding="utf-8"), flags=re.MULTILINE))
        for each in modules.values():
            if each.name != modules.default_section:
                name = each["url"].rpartition("/")[2].removesuffix(".git")
                links[each["path"]] = _write(tree.parent / name, each["url"], None, context, addresses)
    return _write_repository(tree, context / "standin" / addresses[address], tag, links)


def _write_repository(tree: Path, bare: Path, tag: str | None, links: Mapping[str, str]) -> str:
    """A bare repository of `tree`: one commit, and a later one on the branch `next`; the commit of `tree`.

    Args:
        links: the commit of each submodule by its path.
    """
    environment = os.environ | _IDENTITY | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> str:
        command = ["git", f"--git-dir={bare}", f"--work-tree={tree}", "-c", "core.autocrlf=false", *arguments]
        return run(command, f"git {arguments[0]} failed for {tree.name}", env=environment).strip()

    bare.parent.mkdir(parents=True, exist_ok=True)
    run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(bare)], "git init failed", env=environment)
    git("add", "--all", ".")
    for path, commit in links.items():
        git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    git("commit", "--quiet", "--message", f"Stand-in for {tree.name}")
    if tag:
        git("tag", "--annotate", tag, "--message", tag)
    commit = git("rev-parse", "HEAD")
    git("update-ref", "refs/heads/next", git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "A later commit"))
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    (bare / "index").unlink()
    return commit
