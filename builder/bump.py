"""Pin other commits: resolve what is asked for, change exactly those scalars, and write only what holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder import git, preflight, render
from builder import manifest as manifests
from builder.errors import PreflightError, Problem, UsageError
from builder.files import write_together
from builder.git import GitError
from builder.schema import did_you_mean, near_or_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from builder.entries import Source
    from builder.facts import Facts
    from builder.manifest import Manifest
    from builder.report import Report

KEEP_GOING = "--keep-going writes it all the same"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Change:
    """One scalar of the manifest."""

    key: tuple[str, ...]
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Bump:
    """A manifest with other pins, not yet written, and what its preflight found."""

    before: Manifest
    manifest: Manifest
    changes: tuple[Change, ...]
    files: Mapping[Path, bytes]  # of those that the manifest is made of, the ones that change
    dockerfile: str
    report: Report
    problems: tuple[Problem, ...] = ()  # beside what the preflight asks

    @property
    def drops_lock(self) -> bool:
        """Whether there is a lock, and it is of the pins before."""
        return self.before.lock is not None and self.manifest.lock is None


def write(bumps: Sequence[Bump], root: Path) -> None:
    """Replace manifests and Dockerfiles, remove stale locks; killed in between, it leaves what `check` calls stale."""
    files = {path: content for bump in bumps for path, content in bump.files.items()}
    files |= {root / bump.manifest.dockerfile: bump.dockerfile.encode() for bump in bumps}
    write_together(files)
    for bump in bumps:
        if bump.drops_lock:
            (root / bump.manifest.lock_file).unlink()


def assert_no_other_image_changes(bumps: Sequence[Bump], others: Sequence[Manifest]) -> None:
    """Refuse to change a file that other images are made of too, without them.

    Raises:
        UsageError: with the file, and whose it is.
    """
    for other in others:
        for path in sorted({path for bump in bumps for path in bump.files} & other.files):
            hint = f"bump --all-images changes both; or give {bumps[0].manifest.title} a pin of its own"
            raise UsageError(Problem(f"{path} is {other.title}'s too", hint=hint))


def prepare(  # noqa: PLR0913 (each is one fact of the bump)
    manifest: Manifest,
    facts: Facts,
    wanted: Mapping[str, str],
    root: Path,
    *,
    offline: bool = False,
    more: Sequence[Change] = (),
) -> Bump:
    """What the manifest would be, rendered and through its preflight; nothing is written.

    Args:
        wanted: by source, a tag, a branch or a commit.
        more: changes of other scalars than the sources'.

    Raises:
        UsageError: where a source or a reference is not there.
        ManifestError: where the result is no manifest.
    """
    changes = (*more, *(change for name, pin in wanted.items() for change in _changes(manifest, name, pin)))
    files = manifest.rewritten({change.key: change.after for change in changes})
    after = manifests.parse(files[manifest.path], manifest.path, files)
    lock = manifest.lock  # of other pins also where a bump that was killed has written the manifest, and not removed it
    after = after.with_lock(lock if lock and lock.manifest == after.resolution else None)
    changed = {path: content for path, content in files.items() if content != path.read_bytes()}
    text = render.render(after, facts)
    return Bump(manifest, after, changes, changed, text, preflight.run(after, facts, root, offline=offline))


def assert_all_hold(bumps: Sequence[Bump]) -> None:
    """Refuse what a preflight has refused, and what holds against a base.

    Raises:
        PreflightError: how many; the reports say which.
    """
    failed = sum(bump.report.count("failed") for bump in bumps)
    problems = [problem for bump in bumps for problem in bump.problems]
    if failed:
        of = sum(len(bump.report.checks) for bump in bumps)
        problems.append(Problem(f"{failed} of {of} probes failed: nothing is written", hint=KEEP_GOING))
    elif problems:
        problems.append(Problem("nothing is written", hint=KEEP_GOING))
    if problems:
        raise PreflightError(*problems)


def assert_sources(manifest: Manifest, names: Iterable[str]) -> None:
    """Refuse what is no source of a manifest.

    Raises:
        UsageError: with the near one.
    """
    for name in names:
        if name not in manifest.sources:
            hint = near_or_known(name, manifest.sources)
            raise UsageError(Problem(f"no source {name!r} in {manifest.title}", hint=hint))


def _changes(manifest: Manifest, name: str, reference: str) -> Iterator[Change]:
    source = manifest.sources[name]
    tag, commit = _resolved(source, reference)
    pairs = [("tag", source.tag or "", tag or ""), ("commit", source.commit, commit)]
    yield from (Change(("sources", name, key), old, new) for key, old, new in pairs if old != new)


def _resolved(source: Source, reference: str) -> tuple[str | None, str]:
    """The tag, where the source is pinned by one, and the commit that a reference means."""
    if source.tag is None and _COMMIT.fullmatch(reference):
        return None, reference
    try:
        found = git.references(source.repository)
    except GitError as error:
        raise UsageError(Problem(f"{source.name}: {source.repository}: {error}", hint=error.hint)) from error
    commit = found.tag(reference) if source.tag else found.named(reference)
    if commit is None:
        what = "tag" if source.tag else "tag or branch"
        tags = [name.removeprefix("refs/tags/") for name in found.commits if name.startswith("refs/tags/")]
        hint = did_you_mean(reference, tags) or f"git ls-remote {source.repository}"
        raise UsageError(Problem(f"{source.name}: {source.repository} has no {what} {reference!r}", hint=hint))
    return (reference if source.tag else None), commit
