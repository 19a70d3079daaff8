"""What a bump comes to, as a pull request tells it: pins, what they change, and what the next build runs again."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from builder import build, dockerfile, preflight
from builder.inside import judge
from builder.probes import Fault, Trees, Untried
from builder.report import cell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.bump import Bump
    from builder.entries import Patch, Source
    from builder.manifest import Manifest
    from builder.patches import Verdict


def of(bump: Bump, root: Path, *, offline: bool = False) -> str:
    """As Markdown.

    Args:
        root: the project, with the Dockerfile as it was, `.cache`, and what earlier builds took.
        offline: ask no host for a tree.
    """
    before, after = bump.before, bump.manifest
    with tempfile.TemporaryDirectory(prefix="summary-") as scratch:
        trees = {
            side: Trees(manifest, root / ".cache", Path(scratch) / side, offline)
            for side, manifest in (("before", before), ("after", after))
        }
        changed = [*_requirements(bump, trees["before"], trees["after"])]
        patched = [*_patches(bump, root, trees["before"], trees["after"])]
    lines = [f"## {before.name}: other pins", "", "| pin | before | after | |", "| --- | --- | --- | --- |"]
    lines += _pins(bump) or ["| none | | | |"]
    if bump.drops_lock:
        lines += ["", f"`{before.lock_file}` goes: it is of the pins before. The next image resolves anew."]
    lines += ["", *(f"**{cell(problem.message)}**\n" for problem in bump.problems), bump.report.markdown()]
    lines += ["### What the sources ask for", "", *(changed or ["* the same"]), ""]
    lines += ["### Patches", "", *(patched or ["* each as before"]), ""]
    lines += ["### What the next build runs again", "", *_again(bump, root)]
    return "\n".join(lines) + "\n"


def _pins(bump: Bump) -> list[str]:
    lines = []
    for change in bump.changes:
        link = ""
        if change.key[-1] == "commit":
            address = bump.before.sources[change.key[1]].repository.removesuffix(".git")
            link = f"[compare]({address}/compare/{change.before}...{change.after})"
        lines.append(f"| {'.'.join(change.key)} | `{change.before}` | `{change.after}` | {link} |")
    return lines


def _moved(bump: Bump) -> Iterator[tuple[Source, Source]]:
    """The sources that are at another commit, as they were and as they are."""
    for name, source in bump.manifest.sources.items():
        if source.commit != bump.before.sources[name].commit:
            yield bump.before.sources[name], source


def _requirements(bump: Bump, before: Trees, after: Trees) -> Iterator[str]:
    for old, new in _moved(bump):
        files = [source.requirements.file for source in (old, new) if source.requirements and source.requirements.file]
        if len(files) < 2:  # noqa: PLR2004 (before, and after)
            continue
        try:
            was, now = _asked(before.of(old), files[0]), _asked(after.of(new), files[1])
        except (Untried, Fault) as reason:
            yield f"* {new.name}: could not be compared: {cell(str(reason))}"
            continue
        for name in sorted({*was, *now}):
            if was.get(name) != now.get(name):
                yield f"* {new.name}: {_line(was.get(name))} -> {_line(now.get(name))}"


def _asked(tree: Path, file: str) -> dict[str, list[str]]:
    """By distribution, the lines of a requirement file and of those that it includes."""
    found: dict[str, list[str]] = {}
    for need, _ in judge.flatten(tree / file, tree)[0]:
        found.setdefault(judge.name_of(need), []).append(str(need))
    return found


def _line(asked: list[str] | None) -> str:
    return "nothing" if asked is None else " and ".join(map(cell, asked))


def _patches(bump: Bump, root: Path, before: Trees, after: Trees) -> Iterator[str]:
    """Each patch of which something else becomes: its own source has moved, or the one that brings it."""
    moved = {source.name for _, source in _moved(bump)}
    for name, source in bump.manifest.sources.items():
        if moved.isdisjoint({name, *(patch.source for patch in source.patches)}) or not source.patches:
            continue
        try:
            was = {patch.path: one for patch, one in _verdicts(bump.before, root, name, before)}
            now = {patch.path: one for patch, one in _verdicts(bump.manifest, root, name, after)}
        except (Untried, Fault) as reason:
            yield f"* {name}: could not be compared: {cell(str(reason))}"
            continue
        for path, verdict in now.items():
            if path not in was or was[path].kind != verdict.kind:
                earlier = was[path].kind if path in was else "not there"
                yield f"* {name}: {cell(path)}: {earlier} -> {verdict.kind}"


def _verdicts(manifest: Manifest, root: Path, name: str, trees: Trees) -> list[tuple[Patch, Verdict]]:
    return preflight.patched(manifest, root, manifest.sources[name], trees)[1]


def _again(bump: Bump, root: Path) -> list[str]:
    path = root / bump.before.dockerfile
    steps = rebuilt(path.read_text("utf-8", "replace") if path.is_file() else "", bump.dockerfile)
    seconds = build.earlier_seconds(root, bump.before.tag(bump.before.gpu_targets[:1]))
    lines = [f"* {name}{f', {seconds[name] / 60:.1f} min the last time' if name in seconds else ''}" for name in steps]
    known = [seconds[name] for name in steps if name in seconds]
    if known:
        lines.append(f"\n{len(known)} of {len(steps)} steps are known to take {sum(known) / 60:.0f} min together.")
    return lines or ["* nothing"]


def rebuilt(old: str, new: str) -> list[str]:
    """The steps that run again: the first whose inputs differ, and all behind it."""
    before, after = map(dockerfile.parse, (old, new))
    pairs = zip(before, after, strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0].inputs == pair[1].inputs, pairs))
    return [step.name for step in after[same:] if step.keyword == "RUN"]
