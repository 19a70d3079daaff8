"""The sources' repositories, asked by the git program: people's own settings for proxies and passwords hold."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from builder.errors import MachineError, Problem, UsageError
from builder.told import asking, without_logins

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TIME_LIMIT_S = 120
ATTEMPTS, PAUSE_S = 3, 1.0  # where the host does not answer; every other refusal is one for good
KEPT_S = 30 * 86400  # of a tree that nobody asks for
Why = Literal["unreachable", "no repository", "no commit", "refuses commits", "no access", "failed"]
# What git says, as it says it with LC_ALL=C; in this order.
_SAID: tuple[tuple[Why, str], ...] = (
    ("refuses commits", r"unadvertised object"),
    ("no commit", r"not our ref|couldn't find remote ref|bad object|not a valid object"),
    ("no access", r"authentication failed|could not read (?:username|password)|terminal prompts disabled|\b403\b"),
    ("no access", r"permission denied"),
    ("no repository", r"repository .*not found|does not appear to be a git repository|no such file|\b404\b"),
    (
        "unreachable",
        r"could not resolve|connection (?:refused|timed out|reset)|failed to connect|network is unreachable",
    ),
    ("unreachable", r"timed out|early eof|unexpected disconnect|remote end hung up|rpc failed|\b50[0-9]\b"),
    ("unreachable", r"ssl|certificate"),
)
REMEDIES: Mapping[Why, str] = {
    "unreachable": "see whether the host answers: git ls-remote {address}",
    "no repository": "the address is wrong, or it is a private one: git ls-remote {address}",
    "no commit": "the commit or tag is gone, or never was there: git ls-remote {address}",
    "refuses commits": "the server hands out named references only: pin a tag beside the commit",
    "no access": "give git a password for it: git credential fill, or an address that needs none",
    "failed": "see what git says: git ls-remote {address}",
}


class GitError(Exception):
    """A repository did not give what was asked for.

    Args:
        why: the kind of refusal.
        said: git's own words.
    """

    def __init__(self, why: Why, said: str, address: str) -> None:
        super().__init__(f"{why}: {said}")
        self.why: Why = why
        self.said = said
        self.hint = REMEDIES[why].format(address=address)


@dataclass(frozen=True, slots=True)
class References:
    """What a repository advertises, by full name; of an annotated tag, the commit behind it."""

    commits: Mapping[str, str]

    def tag(self, name: str) -> str | None:
        """The commit of a tag."""
        return self.commits.get(f"refs/tags/{name}")

    def named(self, name: str) -> str | None:
        """The commit of a tag or else of a branch."""
        return self.tag(name) or self.commits.get(f"refs/heads/{name}")


def references(address: str, *, time_limit_s: float = TIME_LIMIT_S) -> References:
    """All references of a repository, by one question.

    Raises:
        GitError: where it gives none.
    """
    commits: dict[str, str] = {}
    for line in _asked(["ls-remote", "--", address], address, time_limit_s).splitlines():
        commit, _, name = line.partition("\t")
        commits[name.removesuffix("^{}")] = commit  # a peeled line stands behind its tag's own
    return References(commits)


@dataclass(frozen=True, slots=True)
class Held:
    """A bare repository of the cache that is ours alone for now.

    Attributes:
        lock: an open file that every git in it has too: one that outlives a process that was killed keeps the lock.
    """

    folder: Path
    lock: int


@contextlib.contextmanager
def repository(cache: Path, address: str) -> Iterator[Held]:
    """The bare repository of an address in the cache; while it is open here, other processes wait."""
    folder = cache / "git" / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.git"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = Held(folder, lock.fileno())
        if not all((folder / part).exists() for part in ("HEAD", "config", "objects/info")):
            _begin(held)
        for left in (*folder.rglob("*.lock"), *_trees(folder).glob("*.lock")):
            left.unlink()  # of a git that was killed: no other works here
        yield held


def _begin(held: Held) -> None:
    unfinished = held.folder.with_suffix(".unfinished")
    for path in (unfinished, held.folder):
        shutil.rmtree(path, ignore_errors=True)
    done = _run(["init", "--quiet", "--bare", str(unfinished)], TIME_LIMIT_S, held=held)
    if done.returncode:
        raise GitError("no commit", done.stderr.strip(), str(held.folder))
    unfinished.rename(held.folder)


def fetch(held: Held, address: str, commit: str, tag: str | None, *, offline: bool) -> None:
    """Have a commit in a bare repository, asked for as the Dockerfile asks: the tag, or the commit alone; no history.

    Raises:
        GitError: where it cannot be had; offline, where it is not there yet.
    """
    if _has(held, commit):
        return
    if offline:
        raise GitError("no commit", f"{commit} is not in the cache, and --offline asks nobody", address)
    reference = f"refs/tags/{tag}" if tag else commit
    options = ["--quiet", "--depth", "1", "--no-tags", "--no-write-fetch-head"]
    # Nobody ends a git that outlives its process: a host that has gone silent may not keep others waiting for ever.
    patience = ["-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={TIME_LIMIT_S}"]
    command = [*patience, f"--git-dir={held.folder}", "fetch", *options, "--", address]
    _asked([*command, f"+{reference}:{_kept(commit)}"], address, TIME_LIMIT_S, held)
    if not _has(held, commit):
        raise GitError("no commit", f"{reference} is another commit than {commit}", address)


def assert_served(address: str, commit: str, scratch: Path) -> None:
    """Have a commit by its own name, as the Dockerfile will, whatever the cache has; without files where a server can.

    Raises:
        GitError: where it cannot be had.
    """
    git(scratch, "init", "--quiet", "--bare", ".")
    options = ("--quiet", "--depth", "1", "--filter=tree:0", "--no-tags", "--no-write-fetch-head")
    _asked([f"--git-dir={scratch}", "fetch", *options, "--", address, commit], address, TIME_LIMIT_S)


def _has(held: Held, commit: str) -> bool:
    """Whether all of a commit is there: of a fetch that was killed, the commit may be, and its files not."""
    asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{_kept(commit)}^{{commit}}"]
    return _run([f"--git-dir={held.folder}", *asked], 60, held=held).stdout.strip() == commit


def _kept(commit: str) -> str:
    """The reference that git writes when it has all of a commit."""
    return f"refs/vime/{commit}"


def _trees(folder: Path) -> Path:
    return folder.with_suffix(".trees")


def tree(held: Held, commit: str) -> Path:
    """The files of a commit but for links that lead out of it, written once and kept while they are asked for.

    Raises:
        GitError: where they cannot be written.
    """
    kept = _trees(held.folder) / commit
    if not kept.is_dir():
        unfinished = kept.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        where = [f"--git-dir={held.folder}", f"--work-tree={unfinished}", "-c", "core.autocrlf=false"]
        index = {"GIT_INDEX_FILE": str(kept.with_name("index"))}
        done = _run([*where, "checkout", "--force", commit, "--", "."], TIME_LIMIT_S, index, held=held)
        if done.returncode:
            raise GitError("no commit", done.stderr.strip(), str(held.folder))
        inside = unfinished.resolve()
        for path in unfinished.rglob("*"):
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                path.unlink()  # a stranger's link would have a file of this machine read, and told
        unfinished.rename(kept)
    os.utime(kept)
    for other in kept.parent.iterdir():
        if other.is_dir() and time.time() - other.stat().st_mtime > KEPT_S:
            shutil.rmtree(other, ignore_errors=True)
    return kept


def revision(where: Path, name: str) -> str:
    """The commit that a revision names in a checkout.

    Raises:
        UsageError: where git does not know it.
    """
    known = git(where, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if known.returncode:
        hint = "git fetch it first; a shallow clone has no history: git fetch --unshallow"
        raise UsageError(Problem(f"git knows no revision {name!r} here", hint=hint))
    return known.stdout.strip()


def git(where: Path, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """One git command in a folder; its exit code is the caller's to judge."""
    return _run(["-C", str(where), *arguments], TIME_LIMIT_S, given=given)


def _asked(arguments: list[str], address: str, time_limit_s: float, held: Held | None = None) -> str:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            done = _run(arguments, time_limit_s, held=held)
        except subprocess.TimeoutExpired:
            raise GitError("unreachable", f"no answer within {time_limit_s:g} s", address) from None
        if done.returncode == 0:
            return done.stdout
        said = without_logins(done.stderr.strip())  # people's own settings may put one into the address
        why: Why = next((why for why, pattern in _SAID if re.search(pattern, said, re.IGNORECASE)), "failed")
        if why != "unreachable" or attempt == ATTEMPTS:
            raise GitError(why, said, address)
        time.sleep(PAUSE_S)
    raise AssertionError("unreachable")


def _run(
    arguments: list[str],
    time_limit_s: float,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
    held: Held | None = None,
) -> subprocess.CompletedProcess[str]:
    """Never asks a person anything; says what it says in English."""
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "LC_ALL": "C"}
    quiet |= {} if "GIT_SSH_COMMAND" in os.environ else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
    try:
        with asking(shlex.join(["git", *arguments])):
            return subprocess.run(
                ["git", *arguments],
                env={**os.environ, **quiet, **(environment or {})},
                input=given or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=time_limit_s,
                check=False,
                pass_fds=[held.lock] if held else (),
            )
    except FileNotFoundError:
        raise MachineError(
            Problem("this machine has no program `git`", hint="install it, as by: apt-get install git")
        ) from None
