"""Prove the pins before anything is built: references, patches, API window. No engine, no base image, no compile."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from builder import git, patches
from builder.git import GitError
from builder.inside import imports
from builder.manifest import UNKNOWN
from builder.report import COULD_NOT_RUN, FAILED, PASSED, Check, Outcome, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from builder.manifest import Manifest, Patch, Source

# Where a repository may keep its packages.
ROOTS = (".", "src", "python")


class Untried(Exception):  # noqa: N818 (an outcome, not an error)
    """A probe could not run."""


class Fault(Exception):  # noqa: N818 (an outcome, not an error)
    """A probe has found one.

    Args:
        detail: what it is.
        hint: what to change.
    """

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Probe:
    """One question; its answer is what passed, or an exception."""

    name: str
    kind: str
    ask: Callable[[], tuple[str, tuple[str, ...]]]  # the detail, and notes


@dataclass
class Trees:
    """The pinned trees of a manifest's sources, each fetched once, when somebody first asks."""

    manifest: Manifest
    cache: Path
    scratch: Path
    offline: bool
    _locks: dict[str, threading.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._locks = {name: threading.Lock() for name in self.manifest.sources}

    def of(self, source: Source) -> Path:
        """A tree that nobody changes.

        Raises:
            Untried: where the commit is not known, or the host does not answer.
            Fault: where the repository does not have it.
        """
        tree = self.scratch / source.name
        with self._locks[source.name]:
            if not tree.is_dir():
                self._write(source, tree)
        return tree

    def patched(self, source: Source, name: str) -> Path:
        """A tree of one's own, as the pins have it."""
        tree = self.scratch / name
        self._write(source, tree)
        return tree

    def _write(self, source: Source, tree: Path) -> None:
        if source.commit == UNKNOWN:
            raise Untried(f"sources.{source.name}.commit is unknown")
        try:
            with git.repository(self.cache, source.repository) as folder:
                git.fetch(folder, source.repository, source.commit, source.tag, offline=self.offline)
                git.check_out(folder, source.commit, tree)
        except GitError as error:
            raise told(source, error) from error


def told(source: Source, error: GitError) -> Untried | Fault:
    """A repository's refusal: what nobody could ask is not what somebody has denied."""
    if error.why == "unreachable" or "--offline" in error.said:
        return Untried(f"{source.repository}: {error}")
    return Fault(f"{source.repository}: {error}", f"sources.{source.name}: {error.hint}")


def run(manifest: Manifest, root: Path, *, offline: bool = False, more: Iterable[Probe] = ()) -> Report:
    """Every probe of a manifest, side by side; all answers, not only the first that is bad.

    Args:
        root: the project, with `.cache` and the local patches.
        offline: ask no host; what is not in the cache could not run.
        more: probes of what the build stands on.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="preflight-") as scratch:
        trees = Trees(manifest, root / ".cache", Path(scratch), offline)
        probes = [
            *_references(manifest, offline=offline),
            *_patches(manifest, root, trees),
            *_windows(manifest, trees),
            *more,
        ]
        checks = answers(probes)
    return Report(
        image=manifest.name,
        image_id="",
        tag=None,
        gpu_targets=manifest.gpu_targets,
        pins="as manifest",
        arguments={},
        checks=checks,
        seconds=time.monotonic() - started,
    )


def answers(probes: Sequence[Probe]) -> tuple[Check, ...]:
    """What each probe came to; they are asked side by side."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        return tuple(pool.map(_answered, probes))


def _answered(probe: Probe) -> Check:
    started = time.monotonic()
    outcome: Outcome = PASSED
    detail, hint = "", ""
    notes: tuple[str, ...] = ()
    try:
        detail, notes = probe.ask()
    except Untried as reason:
        outcome, detail = COULD_NOT_RUN, str(reason)
    except Fault as fault:
        outcome, detail, hint = FAILED, str(fault), fault.hint
    seconds = time.monotonic() - started
    return Check(
        name=probe.name, kind=probe.kind, outcome=outcome, detail=detail, hint=hint, seconds=seconds, notes=notes
    )


# References


def _references(manifest: Manifest, *, offline: bool) -> Iterator[Probe]:
    for source in manifest.sources.values():
        yield Probe(
            f"{source.name}'s {source.tag or 'commit'} is what is pinned",
            "reference",
            lambda source=source: _reference(source, offline=offline),  # type: ignore[misc]
        )


def _reference(source: Source, *, offline: bool) -> tuple[str, tuple[str, ...]]:
    if offline:
        raise Untried("--offline asks no host")
    if source.commit == UNKNOWN:
        raise Untried(f"sources.{source.name}.commit is unknown")
    try:
        found = git.references(source.repository)
    except GitError as error:
        raise told(source, error) from error
    if source.tag is None:
        names = [name for name, commit in found.commits.items() if commit == source.commit]
        return f"{source.commit} {f'is {names[0]}' if names else 'is fetched by its own name'}", ()
    now = found.tag(source.tag)
    if now is None:
        raise Fault(
            f"{source.repository} has no tag {source.tag}", f"sources.{source.name}.tag: it was deleted or renamed"
        )
    if now != source.commit:
        compare = f"{source.repository}/compare/{source.commit}...{now}"
        hint = f"sources.{source.name}.commit: see what changed before you pin it: {compare}"
        raise Fault(f"the tag {source.tag} has moved: from {source.commit} to {now}", hint)
    return f"{source.tag} is {now}", ()


# Patches


def _patches(manifest: Manifest, root: Path, trees: Trees) -> Iterator[Probe]:
    for source in manifest.sources.values():
        if source.patches:
            yield Probe(
                f"the patches of {source.name} apply, in their order",
                "patches",
                lambda source=source: _patched(manifest, root, source, trees),  # type: ignore[misc]
            )


def _patched(manifest: Manifest, root: Path, source: Source, trees: Trees) -> tuple[str, tuple[str, ...]]:
    verdicts = list(verdicts_of(manifest, root, source, trees))
    bad = [(patch, verdict) for patch, verdict in verdicts if not verdict.good]
    if bad:
        lines = [f"{patch.path}: {verdict.kind}: {verdict.detail}" for patch, verdict in bad]
        raise Fault("\n".join(lines), f"sources.{source.name}.patches: {patches.REMEDIES[bad[0][1].kind]}")
    notes = tuple(f"{patch.path}: {verdict.kind}, {verdict.detail}" for patch, verdict in verdicts if verdict.detail)
    return f"{len(verdicts)} of {len(verdicts)}", notes


def verdicts_of(
    manifest: Manifest, root: Path, source: Source, trees: Trees
) -> Iterator[tuple[Patch, patches.Verdict]]:
    """Each patch of a source with its verdict, applied in order to a tree of their own.

    Raises:
        Untried: where a tree cannot be had.
        Fault: where a repository does not have it, or a patch is not in its place.
    """
    tree = trees.patched(source, f"{source.name}-patched")
    for patch in source.patches:
        place = trees.of(manifest.sources[patch.source]) / patch.path if patch.source else root / patch.path
        if not place.is_file():
            where = f"{patch.source} at its commit" if patch.source else "this project"
            raise Fault(f"{patch.path} is not in {where}", f"sources.{source.name}.patches: it was moved or dropped")
        yield patch, patches.judge(tree, place)


# The API window


def _windows(manifest: Manifest, trees: Trees) -> Iterator[Probe]:
    for consumer in manifest.sources.values():
        for provider in consumer.imports_from:
            yield Probe(
                f"{provider} has every name that {consumer.name} imports from it",
                "api_window",
                lambda consumer=consumer, provider=provider: _window(consumer, manifest.sources[provider], trees),  # type: ignore[misc]
            )


def _window(consumer: Source, provider: Source, trees: Trees) -> tuple[str, tuple[str, ...]]:
    theirs, ours = trees.of(provider), trees.of(consumer)
    folders = [_place(ours, package) / package for package in consumer.packages]
    roots = sorted({_place(theirs, package) for package in provider.packages})
    unused = {pattern: waived.reason for pattern, waived in consumer.unused.items()}
    found = imports.window(folders, list(provider.packages), roots, unused)
    if found.missing:
        hint = f"sources.{consumer.name}.commit or sources.{provider.name}.commit: a pair that fits together"
        raise Fault("\n".join(found.missing), hint)
    notes = (*found.notes, *(f"{use} is known only when it is imported" for use in found.unknown))
    return f"{len(found.names())} names", notes


def _place(tree: Path, package: str) -> Path:
    for root in ROOTS:
        with contextlib.suppress(OSError):
            if (tree / root / package).is_dir():
                return tree / root
    raise Fault(f"no package {package} in the tree", "its `modules` in the manifest, or the commit, are wrong")
