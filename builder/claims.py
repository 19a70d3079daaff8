"""What a manifest says of a pinned tree, looked up there: the image would find out after its compile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from builder.probes import Fault, Probe
from builder.toolchain import BUILD_FILES, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.entries import Source
    from builder.manifest import Manifest
    from builder.probes import Trees

# Where a repository may keep its packages.
ROOTS = (".", "src", "python")
_LARGEST = 1_000_000  # bytes; what is larger names no module
_NAME = re.compile(r"""^\s*name\s*=\s*["']([\w.-]+)["']""", re.MULTILINE)


def probes(manifest: Manifest, trees: Trees) -> Iterator[Probe]:
    for source in manifest.sources.values():
        yield Probe(
            f"{source.name}'s tree has what the manifest says of it",
            "claims",
            lambda source=source: _told(manifest, source, trees.of(source)),  # type: ignore[misc]
        )


def _told(manifest: Manifest, source: Source, tree: Path) -> tuple[str, tuple[str, ...]]:
    key = f"sources.{source.name}"
    wrong: dict[str, str] = {}  # the key of each fault
    for module in source.modules:
        if not _has_module(tree, module):
            wrong[f"no module {module} in the tree of this commit"] = f"{key}.modules"
    found = _distribution(tree)
    if found and canonicalize_name(found) != canonicalize_name(source.distribution):
        wrong[f"this commit builds {found}, not {source.distribution}"] = f"{key}.distribution"
    for path in source.tests:
        if not (tree / path).is_file():
            wrong[f"no file {path} in the tree of this commit"] = f"{key}.tests"
    for name in _variables(manifest, source):
        if not _reads(tree, source, name):
            wrong[f"nothing in {', '.join(source.packages)} reads {name}"] = f"env.{name}"
    if wrong:
        raise Fault("\n".join(wrong), f"change {' or '.join(dict.fromkeys(wrong.values()))}")
    return f"{len(source.modules)} modules", ()


def _has_module(tree: Path, module: str) -> bool:
    *parents, name = module.split(".")
    for root in ROOTS:
        folder = (tree / root).joinpath(*parents)
        if (folder / name).is_dir() or (folder / f"{name}.py").is_file():
            return True
        # One that is compiled has its name in what it is made of.
        if parents and folder.is_dir() and any(_has(file, rf"\b{name}\b") for file in folder.iterdir()):
            return True
    return any(_has(tree / file, rf"[\"']{re.escape(module)}[\"']") for file in BUILD_FILES)


def _has(file: Path, pattern: str) -> bool:
    if not file.is_file() or file.stat().st_size > _LARGEST:
        return False
    return re.search(pattern, file.read_text(encoding="utf-8", errors="replace")) is not None


def _distribution(tree: Path) -> str | None:
    """What the tree calls its distribution, where it says so in plain words."""
    if name := table(tree, "project").get("name"):
        return str(name)
    setup = tree / BUILD_FILES[0]
    names = set(_NAME.findall(setup.read_text(encoding="utf-8", errors="replace"))) if setup.is_file() else set()
    return names.pop() if len(names) == 1 else None


def _variables(manifest: Manifest, source: Source) -> list[str]:
    """Variables that begin with the name of a source: VLLM_... is vLLM's."""
    start = f"{canonicalize_name(source.distribution).replace('-', '_').upper()}_"
    return [name for name in manifest.env if name.startswith(start)]


def _reads(tree: Path, source: Source, name: str) -> bool:
    folders = [folder for root in ROOTS for each in source.packages if (folder := tree / root / each).is_dir()]
    files = (file for folder in folders for file in folder.rglob("*.py"))
    return not folders or any(name.encode() in file.read_bytes() for file in files)
