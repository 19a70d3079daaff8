"""A room imports only rooms before it, and keeps to its trade."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "builder"
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "scripts").iterdir() if path.is_file())
PROGRAMS = [
    *sorted(
        str(path.relative_to(ROOT)) for folder in ("benchmarks", "builder") for path in (ROOT / folder).rglob("*.py")
    ),
    *(name for name in SCRIPTS if (ROOT / name).read_text(encoding="utf-8").startswith("#!/usr/bin/env python3")),
]
WHOLE = {"builder/inside/judge.py", "builder/inside/imports.py"}

# A room may import only rooms that stand before it.
ROOMS = [
    *(
        "told",
        "units",
        "errors",
        "files",
        "document",
        "located_yaml",
        "distributions",
        "vocabulary",
        "schema",
        "consistency",
        "entries",
        "lock",
        "manifest",
        "facts",
        "project",
        "lists",
        "checklist",
    ),
    *(
        "dockerfile",
        "rules",
        "steps",
        "render",
        "trace",
        "connection",
        "client",
        "container",
        "engine",
        "registry",
        "report",
        "records",
        "recording",
        "reading",
        "buildkit",
        "failure",
        "progress",
        "proof",
        "push",
        "contents",
        "verify",
        "made",
        "drift",
        "layers",
        "explain",
        "locking",
        "sbom",
        "build",
    ),
    *("terminal", "debugging", "devices", "running", "masks", "observed", "verdict", "probing", "cleaning"),
    *("wheelhouse", "rootfs", "stock", "upstreams", "standin", "rehearsal", "front"),
    *(
        "git",
        "side",
        "diff",
        "page",
        "patches",
        "uv",
        "resolve",
        "probes",
        "planning",
        "toolchain",
        "claims",
        "preflight",
        "bump",
        "summary",
        "base_pin",
        "starting",
        "doctor",
        "matrix",
        "several",
        "base_commands",
        "matrix_commands",
        "build_commands",
        "image_commands",
        "inspect_commands",
        "pin_commands",
        "cli",
    ),
]
IN_IMAGE = sorted(path.stem for path in (PACKAGE / "inside").glob("[a-z]*.py"))

FRONT = {
    "front",
    "base_commands",
    "build_commands",
    "image_commands",
    "inspect_commands",
    "matrix_commands",
    "pin_commands",
    "cli",
}

# Who may import what nobody else does.
ALONE = {
    "subprocess": {"git", "rootfs", "several", "uv"},
    "cyclonedx": {"sbom"},
    "docker": {"cleaning", "connection", "container", "contents", "engine", "push", "registry", "terminal"},
    "click": FRONT,
    "rich": {"progress"},
}


def tree(room: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{room}.py").read_text(encoding="utf-8"))


def imported_modules(room: str) -> Iterator[str]:
    for node in ast.walk(tree(room)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module="builder", names=names):
                yield from (f"builder.{alias.name}" for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.ImportFrom():
                pytest.fail(f"builder/{room}.py:{node.lineno}: write imports from `builder`, not relative ones")
            case _:
                pass


def imported_rooms(room: str) -> set[str]:
    parts = [module.split(".") for module in imported_modules(room)]
    return {part[1] for part in parts if part[0] == "builder" and len(part) > 1 and part[1] != "inside"}


def test_every_room_is_listed() -> None:
    present = {path.stem for path in PACKAGE.glob("[a-z]*.py")}
    assert present == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_back(room: str) -> None:
    assert imported_rooms(room) <= set(ROOMS[: ROOMS.index(room)])


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_to_its_trade(room: str) -> None:
    packages = {module.partition(".")[0] for module in imported_modules(room)}
    for package, rooms in ALONE.items():
        assert package not in packages or room in rooms, f"{room} imports {package}"


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in FRONT])
def test_only_the_command_line_prints(room: str) -> None:
    calls = [node.func for node in ast.walk(tree(room)) if isinstance(node, ast.Call)]
    assert not [call.lineno for call in calls if isinstance(call, ast.Name) and call.id == "print"]
    assert not [call.lineno for call in calls if isinstance(call, ast.Attribute) and call.attr == "echo"]


@pytest.mark.parametrize("name", sorted({*PROGRAMS, *SCRIPTS} - WHOLE))
def test_a_file_can_be_read_in_one_go(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_is_seen_at_one_glance(name: str) -> None:
    nodes = ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8")))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [f"{each.name}: {lines}" for each in functions if (lines := (each.end_lineno or 0) - each.lineno + 1) > 40]
    assert long == []


def test_what_is_longer_than_others_has_its_decision() -> None:
    decision = (ROOT / "docs/decisions/014-programs-that-the-host-reads-are-one-file.md").read_text(encoding="utf-8")
    for name in WHOLE:
        assert f"`{Path(name).name}`" in decision
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) > 300


@pytest.mark.parametrize("program", IN_IMAGE)
def test_programs_of_the_image_import_nothing_of_the_builder(program: str) -> None:
    packages = {module.partition(".")[0] for module in imported_modules(f"inside/{program}")}
    assert "builder" not in packages
