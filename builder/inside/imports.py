"""Compute the API window: every name that a consumer imports from a provider, and whether the provider has it."""

from __future__ import annotations

import ast
import functools
import os
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

HERE, UNKNOWN, ABSENT = STATES = "here", "unknown until imported", "absent"
IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# A module that fills itself in while it runs: no reader knows its names.
DYNAMIC = re.compile(
    rb"def __getattr__\(|globals\(\)(\[[^\]\n]+\] *=[^=]|\.update)|sys\.modules\[__name__\] *=|sys\.meta_path"
)
# CPython 3.11 counts a tree's depth per interpreter: of two threads that parse, one can end in a SystemError.
PARSING = threading.Lock()
IMPLIED = {"__dict__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
Origin = tuple[str, str | None]  # module, and the name in it


@dataclass(frozen=True, order=True)
class Use:
    """One name taken from a module, such as `Engine` or `core.Engine`; without a name, the module itself."""

    module: str
    name: str | None
    file: str
    line: int
    attribute: bool = False  # of what was imported elsewhere in the file

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


@dataclass
class Choice:
    """Imports under `try`: what is tried (then its `else`), or one of the handlers; an empty handler always holds."""

    tried: list[Use | Choice]
    then: list[Use | Choice]
    handlers: list[list[Use | Choice]]


@dataclass
class Window:
    """What was asked and what was found."""

    used: list[Use] = field(default_factory=list)
    unknown: list[Use] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    idle: set[str] = field(default_factory=set)  # the waivers that this window did not need

    def add(self, other: Window) -> None:
        for name in ("used", "unknown", "missing", "notes"):
            vars(self)[name].extend(vars(other)[name])

    def names(self) -> list[str]:
        return sorted({str(use) for use in [*self.used, *self.unknown]})


def parse(text: bytes) -> ast.Module:
    with PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in somebody's string
        tree = ast.parse(text)
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        for node in ast.walk(tree):  # annotations that nobody evaluates
            for key in {"annotation", "returns"} & vars(node).keys():
                setattr(node, key, ast.Constant(None))
    return tree


def type_checking(node: ast.If) -> bool:
    return ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING"


def running(scope: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs with a scope: no bodies of inner scopes, nothing that only a type checker sees."""
    for node in scope.orelse if isinstance(scope, ast.If) and type_checking(scope) else ast.iter_child_nodes(scope):
        if not (isinstance(node, ast.AnnAssign) and node.value is None):  # that makes no name
            yield node
            yield from () if isinstance(node, SCOPES) else running(node)


def at_once(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs with a statement: what a function does, it does later."""
    for child in ast.iter_child_nodes(node):
        yield child
        yield from () if isinstance(child, FUNCTIONS) else at_once(child)


def definitions(scope: ast.AST, package: str) -> dict[str, set[Origin | None]]:
    """The names of a scope, each with where it is imported from (None: made here); `*` for whole modules."""
    found: dict[str, set[Origin | None]] = {}
    for node in running(scope):
        pairs: list[tuple[str, Origin | None]]
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pairs = [(name, None)]
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                pairs = [(name, None)]
            case ast.Import(names=aliases):
                bound = [(alias.asname, alias.name if alias.asname else alias.name.split(".")[0]) for alias in aliases]
                pairs = [(asname or module, (module, None)) for asname, module in bound]
            case ast.ImportFrom(names=aliases):
                pairs = [(alias.asname or alias.name, (absolute(node, package), alias.name)) for alias in aliases]
            case _:
                continue
        for local, origin in pairs:
            found.setdefault(local, set()).add(origin)
    return found


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The module that `from . import` means in a package."""
    parts = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
    return ".".join(filter(None, [*parts, node.module]))


def module_of(file: Path) -> tuple[str, str]:
    """Module and package of a file, whose path is relative to where imports start."""
    parts = file.with_suffix("").parts
    package = ".".join(parts[:-1])
    return (package, package) if parts[-1] == "__init__" else (".".join(parts), package)


class Scanner(ast.NodeVisitor):
    """Collect what one file takes from the packages, and all that it imports as soon as it is imported itself."""

    def __init__(self, file: str, packages: list[str]) -> None:
        self.file, self.packages, self.package = file, packages, module_of(Path(file))[1]
        self.needs: list[Use | Choice] = []
        self.at_top: set[str] = set()
        self.scopes: list[dict[str, set[Origin | None]]] = []
        self.later = self.asked = 0  # how deep in functions and optional imports; in tests for an attribute

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, (ast.Module, *SCOPES)):
            super().visit(node)
            return
        self.scopes.append(definitions(node, self.package))
        self.inner([*ast.iter_child_nodes(node)], later=isinstance(node, FUNCTIONS), into=self.needs)
        self.scopes.pop()

    def add(self, module: str, name: str | None, line: int, *, attribute: bool = False) -> None:
        self.at_top |= set() if self.later else {module, f"{module}.{name}"}
        if module.partition(".")[0] in self.packages:
            self.needs.append(Use(module, name, self.file, line, attribute))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, None, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.add(absolute(node, self.package), None if alias.name == "*" else alias.name, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        # What a consumer sets or deletes is its own.
        parts, inner = [node.attr] if isinstance(node.ctx, ast.Load) else [], node.value
        while isinstance(inner, ast.Attribute):
            parts, inner = [inner.attr, *parts], inner.value
        start = inner.id if isinstance(inner, ast.Name) else ""
        origins = next((scope[start] for scope in reversed(self.scopes) if start in scope), set()) - {None}
        if len(origins) == 1 and not self.asked:  # of several, nobody knows which it is
            module, name = origins.pop() or ("", None)
            self.add(module, ".".join(filter(None, [name, *parts])) or None, node.lineno, attribute=True)
        self.generic_visit(inner)

    def visit_Call(self, node: ast.Call) -> None:
        if re.search(r"\bimport_module$", ast.unparse(node.func)):
            places = [*node.args, *(keyword.value for keyword in node.keywords)]
            name, *package = [str(place.value) if isinstance(place, ast.Constant) else "" for place in places] or [""]
            start, level = (package or [""])[0].split("."), len(name) - len(name.lstrip("."))
            parts = start[: len(start) + 1 - level] if level else []
            self.add(".".join(filter(None, [*parts, name.lstrip(".")])), None, node.lineno)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = ast.unparse(node.test)
        seen = [] if type_checking(node) else [node.test, *node.body]
        self.inner(seen, asked="hasattr(" in test, into=self.needs)
        self.inner([] if re.fullmatch(r"not (\w+\.)?TYPE_CHECKING", test) else node.orelse, into=self.needs)

    def visit_Try(self, node: ast.Try) -> None:
        caught = [set(re.findall(r"\w+", ast.unparse(one.type) if one.type else "Exception")) for one in node.handlers]
        optional = any(names & IMPORT_ERRORS for names in caught)
        tried = self.inner(node.body, later=optional, asked=any("AttributeError" in names for names in caught))
        handlers = []
        for handler, names in zip(node.handlers, caught, strict=True):
            needs = self.inner(handler.body, later=True)
            goes_on = not any(isinstance(child, ast.Raise) for child in at_once(handler))
            handlers += [needs] if names & IMPORT_ERRORS and (needs or goes_on) else []
            self.needs += [] if names & IMPORT_ERRORS else needs
        then = self.inner(node.orelse, later=optional)
        self.needs += [Choice(tried, then, handlers)] if tried and handlers else [*tried, *then]
        self.inner(node.finalbody, into=self.needs)

    def inner(self, nodes: list[ast.AST] | list[ast.stmt], *, later: bool = False, asked: bool = False,
              into: list[Use | Choice] | None = None) -> list[Use | Choice]:
        """What some nodes need, apart from the rest."""
        before, self.needs = self.needs, [] if into is None else into
        self.later, self.asked = self.later + later, self.asked + asked
        for node in nodes:
            self.visit(node)
        self.later, self.asked = self.later - later, self.asked - asked
        found, self.needs = self.needs, before
        return found


class Provider:
    """What some packages define, read from source files and only as far as asked; an import that failed counts too."""

    def __init__(self, roots: list[Path], packages: list[str], failing: Mapping[Origin, str]) -> None:
        self.roots, self.packages, self.failing = roots, packages, failing
        self.done_without: set[str] = set()  # what the file at hand tried to import, and goes on without

    @functools.cache  # noqa: B019 - one provider a run
    def find(self, module: str) -> Path | None:
        """The file of a module, or its folder where it has no file of its own."""
        places = [root.joinpath(*module.split(".")) for root in self.roots]
        for place in places:
            compiled = (path for end in ("*.so", "pyi") for path in sorted(place.parent.glob(f"{place.name}.{end}")))
            for path in (place / "__init__.py", place.parent / f"{place.name}.py", *compiled):
                if path.is_file():
                    return path
        return next((place for place in places if place.is_dir()), None)

    def has(self, module: str, name: str | None, seen: tuple[Origin, ...] = ()) -> str:
        """Whether a module is there and defines a name; a dotted name is looked up part by part."""
        path = self.find(module)
        if path is None:
            return UNKNOWN if self.hidden(module.rpartition(".")[0]) else ABSENT
        if not name or name.partition(".")[0] in IMPLIED:
            return HERE
        first, _, rest = name.partition(".")
        found = {self.has(f"{module}.{first}", rest)} if self.find(f"{module}.{first}") else set()
        if HERE not in found and (module, first) not in seen:
            found |= self.defines(path, module, first, rest, (*seen, (module, first)))
        return next((state for state in STATES if state in found), ABSENT)

    def hidden(self, module: str) -> bool:
        """Whether a module may bring submodules that are no files: it is compiled, or hooks into the import."""
        path = self.find(module) if module else None
        if path is None or path.is_dir():
            return bool(module) and self.hidden(module.rpartition(".")[0])
        return path.suffix != ".py" or b"sys.meta_path" in path.read_bytes()

    def defines(self, path: Path, module: str, first: str, rest: str, seen: tuple[Origin, ...]) -> set[str]:
        """What the file of a module says of a name, whose origin may be none of this provider's."""
        if path.suffix != ".py":
            return {ABSENT if path.is_dir() else UNKNOWN}
        origins, _, dynamic = self.names(path, module)
        stars = [star[0] for star in origins.get("*", ()) if star and self.exports(star[0], first)]
        found = {UNKNOWN} if dynamic else set()
        for origin, foreign in [*((o, HERE) for o in origins.get(first, ())), *(((s, first), UNKNOWN) for s in stars)]:
            if origin and self.find(origin[0].partition(".")[0]):
                found.add(self.has(origin[0], ".".join(filter(None, (origin[1], rest))), seen))
            else:
                found.add(foreign)
        return found

    def exports(self, module: str, name: str) -> bool:
        """Whether a star import of a module would bring a name along, if it is there."""
        path = self.find(module)
        origins, public, _ = self.names(path, module) if path and path.suffix == ".py" else ({}, {name}, True)
        return name in public if public is not None else "__all__" in origins or not name.startswith("_")

    @functools.cache  # noqa: B019 - one provider a run
    def names(self, path: Path, module: str) -> tuple[dict[str, set[Origin | None]], set[str] | None, bool]:
        """What a file defines, its __all__ where that can be read, and whether it may have more."""
        text = path.read_bytes()
        try:
            tree = parse(text)
        except (SyntaxError, ValueError):
            return {}, None, True  # perhaps of a newer Python than this one
        origins = definitions(tree, module if path.name == "__init__.py" else module.rpartition(".")[0])
        public, dynamic = set[str](), bool(DYNAMIC.search(text))
        for node in running(tree) if "__all__" in origins else ():
            match node:
                case ast.Assign(value=said) | ast.AugAssign(value=said) | ast.AnnAssign(value=said) | ast.Expr(said):
                    if said and ast.unparse(node).startswith("__all__"):
                        try:
                            public |= set(ast.literal_eval(said))
                        except ValueError:  # computed
                            return origins, None, dynamic
                case _:
                    pass
        return origins, public if "__all__" in origins else None, dynamic

    def now_in(self, use: Use) -> list[str]:
        """The modules that define what is missing today, or are called so."""
        module, parts = use.module, (use.name or use.module.rpartition(".")[2]).split(".")
        while use.name and len(parts) > 1 and self.find(f"{module}.{parts[0]}"):
            module = f"{module}.{parts.pop(0)}"
        for name in parts:
            word = re.escape(name).encode()
            hint = re.compile(rb"^\s*(?:class|def|async def)\s+%b\b|^\s*%b\s*[:=]" % (word, word), re.MULTILINE)
            texts = (each for each in self.texts() if name.encode() in each[2] and hint.search(each[2]))
            places = [place for path, place, _ in texts if None in self.names(path, place)[0].get(name, ())]
            if places:
                return places
        return [place for _, place, _ in self.texts() if place.rpartition(".")[2] == parts[0]]

    @functools.cache  # noqa: B019 - one provider a run
    def texts(self) -> list[tuple[Path, str, bytes]]:
        files = ((root, path) for root in self.roots for name in self.packages for path in python_files(root / name))
        return [(path, module_of(path.relative_to(root))[0], path.read_bytes()) for root, path in files]

    def all(self, needs: list[Use | Choice]) -> Window:
        found, lacking = Window(), set[str]()
        # Attributes last: what is imported, and may not be there, may stand below them.
        for need in sorted(needs, key=lambda need: isinstance(need, Use) and need.attribute):
            if isinstance(need, Use) and need.attribute and str(need).startswith(tuple(self.done_without)):
                continue
            part = self.choose(need) if isinstance(need, Choice) else self.look(need)
            if isinstance(need, Use) and part.missing:
                # The same name once more, or an attribute of what is missing, says nothing new.
                part = Window() if any(f"{need}.".startswith(f"{name}.") for name in lacking) else part
                lacking |= {str(need)} if need.name else set()
            found.add(part)
        return found

    def choose(self, choice: Choice) -> Window:
        tried = self.all(choice.tried)
        if not tried.missing:
            tried.notes += [f"alternative taken: {', '.join(tried.names())}, the first"] if any(choice.handlers) else []
            tried.add(self.all(choice.then))
            return tried
        for part in map(self.all, choice.handlers):
            if not part.missing:
                self.done_without |= {f"{need}." for need in choice.tried if isinstance(need, Use)}
                taken = ", ".join(part.names())
                title = f"alternative taken: {taken}, for want of" if taken else "optional, and not there"
                part.notes.append(f"{title}: {tried.missing[0]}")
                return part
        return Window(missing=tried.missing)

    def look(self, use: Use) -> Window:
        error = self.failing.get((use.module, use.name))
        state = ABSENT if error else self.has(use.module, use.name)
        if state != ABSENT:
            return Window(used=[use]) if state == HERE else Window(unknown=[use])
        places = [] if error else self.now_in(use)
        why = f"; it is now in {', '.join(places[:3])}" if places else "; nothing defines that name"
        return Window(missing=[f"{use}, imported at {use.file}:{use.line}{f'; it fails: {error}' if error else why}"])


def python_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(place) / name for name in sorted(files) if name.endswith(".py"))


def imported_at_top(scanners: Mapping[str, Scanner], waived: set[str]) -> dict[str, str]:
    """The waived files that others import as soon as they are imported themselves, each with one that does."""
    modules, reached = {module_of(Path(file))[0]: file for file in scanners}, dict[str, str]()
    waiting = [file for file in scanners if file not in waived]
    while waiting:
        by = waiting.pop()
        parents = {name[: dot.start()] for name in scanners[by].at_top for dot in re.finditer(r"\.|$", name)}
        new = {modules[name] for name in parents if name in modules} & waived - set(reached)
        reached |= dict.fromkeys(new, by)
        waiting += sorted(new)
    return reached


def window(folders: list[Path], packages: list[str], roots: list[Path], unused: Mapping[str, str],
           failing: Mapping[Origin, str] | None = None) -> Window:
    """Compare everything that some folders of a checkout import with what stands under the provider's roots."""
    provider, found = Provider(roots, packages, failing or {}), Window(idle=set(unused))
    scanners: dict[str, Scanner] = {}
    for path, parent in [(path, folder.parent) for folder in folders for path in python_files(folder)]:
        file, text = str(path.relative_to(parent)), path.read_bytes()
        if not unused and not any(package.encode() in text for package in packages):
            continue  # only waivers ask what else a file imports
        scanners[file] = Scanner(file, packages)
        try:
            scanners[file].visit(parse(text))
        except (SyntaxError, ValueError) as error:
            found.missing.append(f"{file} cannot be read: {error}")
    waivers = {file: [pattern for pattern in unused if fnmatchcase(file, pattern)] for file in scanners}
    reached = imported_at_top(scanners, {file for file in scanners if waivers[file]})
    for file, scanner in scanners.items():
        provider.done_without = set()
        part = provider.all(scanner.needs)
        found.idle -= set(waivers[file]) if part.missing else set()
        if waivers[file] and file not in reached:
            part = Window(notes=[f"waived ({unused[waivers[file][0]]}): {line}" for line in part.missing])
        elif waivers[file] and part.missing:
            why = f"{reached[file]} imports it at its top"
            found.missing.append(f"unused {waivers[file][0]} cannot waive {file}: {why}")
        found.add(part)
    found.missing, found.notes = [*dict.fromkeys(found.missing)], [*dict.fromkeys(found.notes)]
    return found
