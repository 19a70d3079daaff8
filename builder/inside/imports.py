"""Compute the API window: every name that a consumer imports from a provider, and whether the provider has it."""

from __future__ import annotations

import argparse
import ast
import functools
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

HERE, ABSENT, UNKNOWN = "here", "absent", "unknown until imported"
IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


@dataclass(frozen=True, order=True)
class Use:
    """One name taken from a module; without a name, the module itself."""

    module: str
    name: str | None
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


@dataclass
class Choice:
    """Imports under `try`: one of the branches must hold; an empty one always does."""

    branches: list[list[Use | Choice]] = field(default_factory=list)


Needs = list["Use | Choice"]


class Scanner(ast.NodeVisitor):
    """Collect what one file takes from the packages."""

    def __init__(self, file: str, packages: list[str]) -> None:
        self.file, self.packages = file, packages
        self.needs: Needs = []
        self.bound: dict[str, str] = {}  # local name -> module that it stands for

    def add(self, module: str, name: str | None, line: int) -> None:
        if module.partition(".")[0] in self.packages:
            self.needs.append(Use(module, name, self.file, line))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, None, node.lineno)
            local = alias.asname or alias.name.split(".")[0]
            self.bound[local] = alias.name if alias.asname else local

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and node.module:
            for alias in node.names:
                self.add(node.module, None if alias.name == "*" else alias.name, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self.bound:
            self.add(self.bound[inner.id], ".".join(parts), node.lineno)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if called == "import_module" and node.args and isinstance(node.args[0], ast.Constant):
            self.add(str(node.args[0].value), None, node.lineno)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        checking = ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for child in node.orelse if checking else [node.test, *node.body, *node.orelse]:
            self.visit(child)

    def visit_Try(self, node: ast.Try) -> None:
        catching = [handler for handler in node.handlers if catches_import_errors(handler)]
        if not catching:
            self.generic_visit(node)
            return
        tried = self.inner([*node.body, *node.orelse])
        others = [self.inner(handler.body) for handler in catching]
        goes_on = [not any(isinstance(child, ast.Raise) for child in ast.walk(handler)) for handler in catching]
        branches = [other for other, open_end in zip(others, goes_on, strict=True) if other or open_end]
        self.needs += [Choice([tried, *branches])] if tried and branches else tried
        for child in node.finalbody:
            self.visit(child)

    def inner(self, nodes: list[ast.stmt]) -> Needs:
        """What some statements need, apart from the rest."""
        before, self.needs = self.needs, []
        for node in nodes:
            self.visit(node)
        found, self.needs = self.needs, before
        return found


def catches_import_errors(handler: ast.ExceptHandler) -> bool:
    names = re.findall(r"\w+", ast.unparse(handler.type)) if handler.type else ["BaseException"]
    return bool(set(names) & set(IMPORT_ERRORS))


class Provider:
    """Where modules are defined, read from source files and only as far as asked; an import that failed counts too."""

    def __init__(self, roots: list[Path], failing: Mapping[tuple[str, str | None], str]) -> None:
        self.roots, self.failing = roots, failing

    @functools.cache  # noqa: B019 - one provider a run
    def find(self, module: str) -> Path | None:
        """The file of a module, or its folder where it has no file of its own."""
        for root in self.roots:
            place = root.joinpath(*module.split("."))
            for path in (place / "__init__.py", place.with_suffix(".py")):
                if path.is_file():
                    return path
            compiled = sorted(place.parent.glob(f"{place.name}.*so")) or sorted(place.parent.glob(f"{place.name}.pyi"))
            if compiled:
                return compiled[0]
            if place.is_dir():
                return place
        return None

    def has(self, module: str, name: str | None, seen: tuple[tuple[str, str], ...] = ()) -> str:  # noqa: PLR0911
        """Whether a module is there and defines a name; a dotted name is looked up part by part."""
        path = self.find(module)
        if path is None or not name:
            return HERE if path else ABSENT
        first, _, rest = name.partition(".")
        if self.find(f"{module}.{first}"):
            return self.has(f"{module}.{first}", rest or None)
        if (module, first) in seen:
            return ABSENT
        if path.suffix != ".py":
            return ABSENT if path.is_dir() else UNKNOWN
        names, stars, dynamic = self.names(path, module)
        if first in names:
            origin = names[first]
            return self.has(*origin, (*seen, (module, first))) if origin and self.find(origin[0]) else HERE
        found = {self.has(star, first, (*seen, (module, first))) for star in stars}
        if HERE in found:
            return HERE
        return UNKNOWN if dynamic or UNKNOWN in found else ABSENT

    @functools.cache  # noqa: B019 - one provider a run
    def names(self, path: Path, module: str) -> tuple[dict[str, tuple[str, str | None] | None], list[str], bool]:
        """What a file defines (with the origin of what it imports), its star imports, and a module __getattr__."""
        names: dict[str, tuple[str, str | None] | None] = {}
        stars: list[str] = []
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in outside_functions(ast.parse(path.read_bytes())):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names[name] = None
                case ast.Name(id=name, ctx=ast.Store()):
                    names[name] = None
                case ast.Import(names=aliases):
                    names |= {alias.asname or alias.name.split(".")[0]: None for alias in aliases}
                case ast.ImportFrom(module=origin, names=aliases, level=level):
                    parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                    base = ".".join([*parts, *([origin] if origin else [])])
                    stars += [base for alias in aliases if alias.name == "*"]
                    names |= {alias.asname or alias.name: (base, alias.name) for alias in aliases if alias.name != "*"}
                case _:
                    pass
        return names, stars, "__getattr__" in names

    def now_in(self, packages: list[str], name: str) -> list[str]:
        """The modules that define a name today."""
        word = re.escape(name)
        pattern = re.compile(rf"^\s*(?:class|def|async def)\s+{word}\b|^{word}\s*[:=]", re.MULTILINE)
        files = (path for root in self.roots for package in packages for path in python_files(root / package))
        found = (path for path in files if pattern.search(path.read_text("utf-8", "replace")))
        return sorted({module_name(path, self.roots) for path in found})


def outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a module that runs when it is imported, bodies of functions and classes left out."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from outside_functions(node)


def module_name(path: Path, roots: list[Path]) -> str:
    root = next(root for root in roots if path.is_relative_to(root))
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def python_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(place) / name for name in sorted(files) if name.endswith(".py"))


@dataclass
class Window:
    """What was asked and what was found."""

    used: list[Use] = field(default_factory=list)
    unknown: list[Use] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def window(folders: list[Path], packages: list[str], roots: list[Path], unused: Mapping[str, str],
           failing: Mapping[tuple[str, str | None], str] | None = None) -> Window:
    """Compare everything that some folders of a checkout import with what stands under the provider's roots."""
    provider, found, idle = Provider(roots, failing or {}), Window(), set(unused)
    for path in (path for folder in folders for path in python_files(folder)):
        shown = str(path.relative_to(next(folder.parent for folder in folders if path.is_relative_to(folder))))
        scanner = Scanner(shown, packages)
        scanner.visit(ast.parse(path.read_bytes()))
        patterns = [pattern for pattern in unused if fnmatchcase(shown, pattern)]
        # What a waived file takes is nobody's promise.
        missing = judge(scanner.needs, provider, packages, Window() if patterns else found)
        idle -= set(patterns) if missing else set()
        waived = [f"waived ({unused[patterns[0]]}): {line}" for line in missing] if patterns else []
        found.notes += waived
        found.missing += [] if patterns else missing
    found.notes += [f"waives nothing: unused {pattern}" for pattern in sorted(idle)]
    return found


def judge(needs: Needs, provider: Provider, packages: list[str], found: Window) -> list[str]:
    """What is missing of some needs; what is there joins the window."""
    missing = []
    for need in needs:
        if isinstance(need, Choice):
            trials = [(Window(), branch) for branch in need.branches]
            lacking = [judge(branch, provider, packages, trial) for trial, branch in trials]
            taken = next((number for number, lines in enumerate(lacking) if not lines), None)
            if taken is None:
                missing += lacking[0]
                continue
            trial = trials[taken][0]
            found.used, found.unknown = found.used + trial.used, found.unknown + trial.unknown
            found.notes += trial.notes
            if taken:
                instead = ", ".join(map(str, trial.used)) or "nothing"
                found.notes.append(f"alternative taken: {instead}, for want of: {lacking[0][0]}")
            continue
        error = provider.failing.get((need.module, need.name))
        state = ABSENT if error else provider.has(need.module, need.name)
        (found.used if state == HERE else found.unknown if state == UNKNOWN else []).append(need)
        if state == ABSENT:
            last = str(need).rpartition(".")[2]
            places = [] if error else provider.now_in(packages, last)
            now = f"; it is now in {', '.join(places[:3])}" if places else "; nothing defines that name"
            missing.append(f"{need}, imported at {need.file}:{need.line}{f'; it fails: {error}' if error else now}")
    return missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumer", type=Path, required=True, help="a folder of a checkout")
    parser.add_argument("--provider", type=Path, action="append", required=True, help="a folder that holds the package")
    parser.add_argument("--package", action="append", required=True)
    given = parser.parse_args()
    found = window([given.consumer], given.package, given.provider, {})
    first = f"{len(set(map(str, found.used)))} names, {len(found.missing)} missing"
    print(first, *found.missing, *found.notes, sep="\n  ")
    sys.exit(1 if found.missing else 0)


if __name__ == "__main__":
    main()
