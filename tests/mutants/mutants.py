"""Changes of a program, each of which some test has to notice: a rule removed, a condition inverted or cut, a line gone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

Change = Callable[[str], str]
_LINES = (ast.Raise, ast.Continue, ast.Break, ast.AugAssign)
WORDS = 70  # letters of the changed text that a mutant's name has


@dataclass(frozen=True)
class Mutant:
    """One change of a file.

    Attributes:
        name: what is changed, and how; the same as long as that text stands there.
        function: in which function; `module` outside of all.
        line, end: the first and the last line that it changes.
        text: the whole file with it.
    """

    name: str
    function: str
    line: int
    end: int
    text: str


def mutants(text: str) -> list[Mutant]:
    """All changes of a program, in their order; those of one text in one function are numbered."""
    whole = text.encode()
    starts = [0, *accumulate(map(len, whole.splitlines(keepends=True)))]
    found: list[Mutant] = []
    seen = Counter[str]()
    for where, node, how, new in _changes(ast.parse(text)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old = whole[start:end].decode()
        if how == "remove an entry of":
            end += len(whole[end:]) - len(whole[end:].lstrip(b", \n"))
        name = f"{where}: {how} `{' '.join(old.split())[:WORDS]}`"
        seen[name] += 1
        numbered = f"{name} ({seen[name]})" if seen[name] > 1 else name
        changed = (whole[:start] + new(old).encode() + whole[end:]).decode()
        found.append(Mutant(numbered, where, node.lineno, node.end_lineno or 0, changed))
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt, str, Change]]:
    for where, node in _walk(tree, "module"):
        for test in _conditions(node):
            yield where, test, "invert", _inverted
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                yield where, value, "leave out", _neutral(of_and=isinstance(node.op, ast.And))
        says = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (says or isinstance(node, _LINES)):
            yield where, node, "remove", lambda _: "pass"
        if isinstance(node, ast.Return) and node.value is not None:
            yield where, node, "remove", lambda _: "return None"
        if where == "module" and isinstance(node, ast.Tuple | ast.Set | ast.List):
            first = node.elts[0] if node.elts else node
            bare = (first.lineno, first.col_offset) == (node.lineno, node.col_offset)  # two names at once
            for entry in [] if bare else node.elts:
                yield where, entry, "remove an entry of", lambda _: ""


def _conditions(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else []


def _walk(node: ast.AST, where: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the function that it stands in; annotations, docstrings and the way in are no rules."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.If) and "__main__" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.AnnAssign):
            if child.value:
                yield from _walk(ast.Expression(child.value), where)
            continue
        if isinstance(child, ast.JoinedStr):  # before Python 3.12 its parts have no places
            continue
        inner = child.name if isinstance(child, ast.FunctionDef) else where
        yield inner, child
        yield from _walk(child, inner)


def _inverted(old: str) -> str:
    return f"(not ({old}))"


def _neutral(*, of_and: bool) -> Change:
    """An operand that decides nothing."""
    return lambda _: str(of_and)
