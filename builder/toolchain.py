"""What a pinned tree wants of its own build, held against the manifest: what there belongs to one commit."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from builder.inside import judge
from builder.probes import Fault, Probe, Untried
from builder.resolve import markers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pip._vendor.packaging.requirements import Requirement

    from builder.entries import Source
    from builder.facts import Facts
    from builder.inside.judge import Ask
    from builder.manifest import Manifest
    from builder.probes import Trees

PROJECT = "pyproject.toml"
BUILD_FILES = ("setup.py", "CMakeLists.txt")  # a tree names there what it compiles


def probes(manifest: Manifest, facts: Facts, trees: Trees) -> Iterator[Probe]:
    for source in manifest.sources.values():
        if source.recipe != "shipped":
            yield Probe(
                f"{source.name} finds the tools that it is built with",
                "build_tools",
                lambda source=source: _tools(manifest, facts, source, trees.of(source)),  # type: ignore[misc]
            )
        if source.device_code:
            yield Probe(
                f"{source.name} compiles every module that is said to have device code",
                "device_code",
                lambda source=source: _modules(source, trees.of(source)),  # type: ignore[misc]
            )


def _tools(manifest: Manifest, facts: Facts, source: Source, tree: Path) -> tuple[str, tuple[str, ...]]:
    """No build is isolated in the image: what it asks for has to be there, in a version that it asks for."""
    tools = {str(canonicalize_name(name)): tool.version for name, tool in manifest.build_tools.items()}
    there = {str(canonicalize_name(name)) for name in facts.distributions}
    needed, noted = list(_built_with(tree)), _listed(tree, source)
    wrong = [
        f"{place} wants {need}, build_tools has {tools[name]}"
        for need, place in [*needed, *noted]
        if (name := judge.name_of(need)) in tools
        and _applies(need, facts)
        and not need.specifier.contains(tools[name], prereleases=True)
    ]
    absent = [need for need, _ in needed if judge.name_of(need) not in {*tools, *there} and _applies(need, facts)]
    if facts.tools is not None:  # the base was read: it has no other distributions
        wrong += [f"{PROJECT} wants {need}, which neither the base nor build_tools has" for need in absent]
        absent = []
    if wrong:
        raise Fault("\n".join(wrong), "build_tools: versions that this commit is built with")
    return f"{len(needed)} tools", tuple(f"the base is taken to have {need}" for need in absent)


def _applies(need: Requirement, facts: Facts) -> bool:
    return need.marker is None or bool(need.marker.evaluate(markers(facts)))


def table(tree: Path, name: str) -> dict[str, Any]:
    """A table of a tree's pyproject.toml; empty where there is none.

    Raises:
        Untried: where it cannot be read.
    """
    try:
        return dict(tomllib.loads((tree / PROJECT).read_text(encoding="utf-8")).get(name, {}))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise Untried(f"{PROJECT} cannot be read: {error}") from error


def _built_with(tree: Path) -> Iterator[Ask]:
    lines = table(tree, "build-system").get("requires", [])
    if not isinstance(lines, list):
        raise Untried(f"{PROJECT} cannot be read: build-system.requires is no list")
    for line in map(str, lines):
        if need := judge.parse(line):
            yield need, PROJECT


def _listed(tree: Path, source: Source) -> list[Ask]:
    """A requirement file may cap a build tool too; what else it asks for is the plan's concern."""
    file = source.requirements.file if source.requirements else None
    return judge.flatten(tree / file, tree)[0] if file else []


def _modules(source: Source, tree: Path) -> tuple[str, tuple[str, ...]]:
    files = [tree / name for name in BUILD_FILES if (tree / name).is_file()]
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    # Of a library that is no module, the target has the name without `lib`.
    patterns = {name: rf"(?<!\w){re.escape(name.removeprefix('lib'))}(?!\w)" for name in source.device_code}
    absent = [name for name, pattern in patterns.items() if not re.search(pattern, text)]
    if absent:
        detail = f"no {', '.join(absent)} in {' or '.join(file.name for file in files) or 'the tree'} of this commit"
        raise Fault(detail, f"sources.{source.name}.device_code: what this commit compiles for a GPU")
    return f"{len(source.device_code)} modules", ()
