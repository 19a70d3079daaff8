"""Fetch a source at exactly its commit, apply its patches, and record what the checks compare it with."""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

ATTEMPTS, PAUSE_S = 3, 5
# git has a submodule's newest commit before the one that is wanted; in an image that would stay.
FORGET = ("git for-each-ref --format='delete %(refname)' | git update-ref --no-deref --stdin "
          "&& git reflog expire --expire=now --all && git gc --quiet --prune=now")


class Fault(Exception):  # noqa: N818 - the word of the messages
    """The source is not what the manifest says."""


def git(checkout: Path, *arguments: str) -> bytes:
    """What git prints; its own complaint goes to the build log. An empty template: its samples would stay."""
    command = ["git", "-c", "init.templateDir=", "-C", str(checkout), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def insist(asked: argparse.Namespace, what: str, *arguments: str) -> None:
    """Have something from a host, which is asked more than once: it may be busy."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            git(asked.checkout, *arguments)
            break
        except subprocess.CalledProcessError:
            if attempt == ATTEMPTS:
                raise Fault(f"cannot fetch {what} of {asked.repository}: git says why above") from None
            time.sleep(PAUSE_S)


def fetch(asked: argparse.Namespace) -> str:
    """Check out the tag, or the commit alone, without history; the commit that came."""
    asked.checkout.mkdir(parents=True)
    git(asked.checkout, "init", "--quiet")
    git(asked.checkout, "remote", "add", "origin", asked.repository)
    reference = f"refs/tags/{asked.tag}" if asked.tag else asked.commit
    insist(asked, reference, "fetch", "--quiet", "--depth", "1", "origin", reference)
    git(asked.checkout, "-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD")
    return git(asked.checkout, "rev-parse", "HEAD").decode().strip()


def submodules(asked: argparse.Namespace) -> dict[str, str]:
    """Have every submodule at the commit that its tree names; the commits by path."""
    insist(asked, "the submodules", "submodule", "update", "--quiet", "--init", "--recursive", "--depth", "1")
    if asked.kept:
        git(asked.checkout, "submodule", "--quiet", "foreach", "--recursive", FORGET)
    lines = git(asked.checkout, "submodule", "status", "--recursive").decode().splitlines()
    return {path: commit for commit, path, *_ in map(str.split, lines)}


def patch(asked: argparse.Namespace) -> list[dict[str, str]]:
    """Apply each patch strictly (no fuzz, no three-way); path and digest of each."""
    try:
        for path in asked.patch:
            git(asked.checkout, "apply", str(path))
    except subprocess.CalledProcessError as error:
        raise Fault(f"{error.cmd[-1]} does not apply: git says why above; change the source's patches") from None
    return [{"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in asked.patch]


def record(asked: argparse.Namespace) -> dict[str, object]:
    """Fetch, compare, patch; what is to be remembered of it."""
    found = fetch(asked)
    if found != asked.commit:
        what = f"{asked.tag or 'what came'} of {asked.repository}"
        raise Fault(f"{what} is {found}, not {asked.commit}: change its commit")
    return {
        "name": asked.name,
        "repository": asked.repository,
        "tag": asked.tag,
        "commit": found,
        "checkout": str(asked.checkout),
        "distribution": asked.distribution,
        "kept": asked.kept,
        "submodules": submodules(asked) if asked.submodules else {},
        "patches": patch(asked),
        "diff_sha256": hashlib.sha256(git(asked.checkout, "diff", "HEAD")).hexdigest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="its key under `sources` in the manifest")
    for option in ("--repository", "--commit", "--distribution"):
        parser.add_argument(option, required=True)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--tag")
    parser.add_argument("--patch", type=Path, action="append", default=[])
    parser.add_argument("--submodules", action="store_true", help="with the commits that its tree names")
    parser.add_argument("--kept", action="store_true", help="the checkout stays in the image")
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    asked = parser.parse_args()
    try:
        text = json.dumps(record(asked), indent=1)
    except Fault as fault:
        sys.exit(f"source: sources.{asked.name}: {fault}")
    target = asked.root / "sources" / f"{asked.name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
