"""Prove the pins before anything is built: references, patches, API window, tools, plans. No engine, no compile."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from builder import claims, git, patches, planning, toolchain
from builder.claims import ROOTS
from builder.git import GitError
from builder.inside import imports
from builder.probes import Fault, Probe, Trees, Untried, answers, report, told
from builder.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from builder.entries import Patch, Source
    from builder.facts import Facts
    from builder.manifest import Manifest
    from builder.report import Report


def run(manifest: Manifest, facts: Facts, root: Path, *, offline: bool = False, more: Iterable[Probe] = ()) -> Report:
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
            *_lock(manifest),
            *references(manifest, manifest.sources.values(), offline=offline),
            *_patches(manifest, root, trees),
            *_windows(manifest, root, trees),
            *toolchain.probes(manifest, facts, trees),
            *claims.probes(manifest, trees),
            *planning.probes(planning.Plans(manifest, facts, root / ".cache" / "uv", trees)),
            *more,
        ]
        checks = answers(probes)
    return report(manifest.name, manifest.gpu_targets, checks, time.monotonic() - started)


# The lock


def _lock(manifest: Manifest) -> Iterator[Probe]:
    if manifest.lock:
        yield Probe(f"{manifest.lock_file} is of this manifest", "lock", lambda: _fits(manifest))


def _fits(manifest: Manifest) -> tuple[str, tuple[str, ...]]:
    if stale := manifest.stale_lock:
        raise Fault(f"{stale.message}; the plans are made without it", stale.hint or "")
    return f"{len(manifest.locked)} distributions", ()


# References


def references(manifest: Manifest, sources: Iterable[Source], *, offline: bool = False) -> Iterator[Probe]:
    """Whether each source is where its pin says."""
    for source in sources:
        yield Probe(
            f"{source.name}'s {source.tag or 'commit'} is what is pinned",
            "reference",
            lambda source=source: _reference(manifest, source, offline=offline),  # type: ignore[misc]
        )


def _reference(manifest: Manifest, source: Source, *, offline: bool) -> tuple[str, tuple[str, ...]]:
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
        if not names:
            _served(source)
        return f"{source.commit} {f'is {names[0]}' if names else 'is fetched by its own name'}", ()
    now = found.tag(source.tag)
    if now is None:
        raise Fault(
            f"{source.repository} has no tag {source.tag}", f"sources.{source.name}.tag: it was deleted or renamed"
        )
    if now != source.commit:
        compare = f"{source.repository}/compare/{source.commit}...{now}"
        pin = f"python -m builder bump {manifest.name} {source.name}={source.tag}"
        hint = f"sources.{source.name}.commit: see what changed before you pin it: {compare}; then {pin}"
        raise Fault(f"the tag {source.tag} has moved: from {source.commit} to {now}", hint)
    return f"{source.tag} is {now}", ()


def _served(source: Source) -> None:
    with tempfile.TemporaryDirectory(prefix="commit-") as scratch:
        try:
            git.assert_served(source.repository, source.commit, Path(scratch))
        except GitError as error:
            raise told(source, error) from error


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
    _, verdicts = patched(manifest, root, source, trees)
    bad = [(patch, verdict) for patch, verdict in verdicts if not verdict.good]
    if bad:
        lines = [f"{patch.path}: {verdict.kind}: {verdict.detail}" for patch, verdict in bad]
        raise Fault("\n".join(lines), f"sources.{source.name}.patches: {patches.REMEDIES[bad[0][1].kind]}")
    notes = tuple(f"{patch.path}: {verdict.kind}, {verdict.detail}" for patch, verdict in verdicts if verdict.detail)
    return f"{len(verdicts)} of {len(verdicts)}", notes


def patched(
    manifest: Manifest, root: Path, source: Source, trees: Trees
) -> tuple[Path, list[tuple[Patch, patches.Verdict]]]:
    """The files that a source's patches name, with those applied, in order; and each patch's verdict.

    Raises:
        Untried: where a tree cannot be had.
        Fault: where a repository does not have it, or a patch is not in its place.
    """
    places = []
    for patch in source.patches:
        place = trees.of(manifest.sources[patch.source]) / patch.path if patch.source else root / patch.path
        if not place.is_file():
            where = f"{patch.source} at its commit" if patch.source else "this project"
            raise Fault(f"{patch.path} is not in {where}", f"sources.{source.name}.patches: it was moved or dropped")
        places.append(place)
    tree = trees.part(source, (path for place in places for path in patches.touched(place)))
    return tree, [(patch, patches.judge(tree, place)) for patch, place in zip(source.patches, places, strict=True)]


# The API window


def _windows(manifest: Manifest, root: Path, trees: Trees) -> Iterator[Probe]:
    for consumer in manifest.sources.values():
        by_patches = [patch.source for patch in consumer.patches if patch.source]
        for provider in dict.fromkeys([*consumer.imports_from, *by_patches]):

            def ask(consumer: Source = consumer, provider: str = provider) -> tuple[str, tuple[str, ...]]:
                theirs, ours = manifest.sources[provider], trees.of(consumer)
                if provider in consumer.imports_from:
                    return _window(consumer, theirs, ours, trees, consumer.packages)
                ours, verdicts = patched(manifest, root, consumer, trees)
                if not all(verdict.good for _, verdict in verdicts):
                    raise Untried(f"the patches of {consumer.name} do not apply")
                # Only what its patches touch imports from there.
                there = [name for name in consumer.packages if any((ours / place / name).is_dir() for place in ROOTS)]
                return _window(consumer, theirs, ours, trees, there)

            yield Probe(f"{provider} has every name that {consumer.name} imports from it", "api_window", ask)


def _window(
    consumer: Source, provider: Source, ours: Path, trees: Trees, packages: Iterable[str]
) -> tuple[str, tuple[str, ...]]:
    theirs = trees.of(provider)
    folders = [_place(ours, package) / package for package in packages]
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
