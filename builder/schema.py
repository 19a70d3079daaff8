"""Strict models, and their faults in words with a place."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pydantic

from builder.errors import ManifestError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic_core import ErrorDetails

    from builder.document import Document

_KEY = "[key]"  # how pydantic says that a mapping's key is at fault, not its value
_WANTED = {
    "bool_type": "true or false",
    "dict_type": "keys",
    "mapping_type": "keys",
    "model_type": "keys",
    "string_type": "a text",
    "tuple_type": "a list",
}


class Written(pydantic.BaseModel):
    """What people write: nothing is converted, nothing is ignored, nothing changes later."""

    # Deferred: a model within another is built once, with that one.
    model_config = pydantic.ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)


Model = TypeVar("Model", bound=Written)


def read(model: type[Model], document: Document, rules: Callable[[Document], Iterable[Problem]]) -> Model:
    """`document` as `model`, with what `rules` finds in the document as a whole.

    Raises:
        ManifestError: with every fault, in the order of the lines.
    """
    problems = [*document.problems, *rules(document)]
    value: Model | None = None
    try:
        value = model.model_validate(document.value)
    except pydantic.ValidationError as error:
        faults = error.errors()
        meant = {path for fault in faults if (path := _meant(model, fault))}
        problems += [
            _problem(model, document, fault)
            for fault in faults
            if fault["loc"] not in meant and not _told(document, fault)
        ]
    if problems or value is None:
        raise ManifestError(*sorted(problems, key=_line))
    return value


def did_you_mean(wrong: str, known: Iterable[str]) -> str | None:
    """A hint that names what is near, if anything is."""
    near = nearest(wrong, known)
    return f"did you mean {near!r}?" if near else None


def near_or_known(wrong: str, known: Iterable[str]) -> str:
    """A hint that names what is near, or else all that there is."""
    names = list(known)
    return did_you_mean(wrong, names) or f"known are {', '.join(names) or 'none'}"


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """What is written almost like `wrong`."""
    return next(iter(difflib.get_close_matches(wrong, sorted(known), n=1)), None)


def value_at(document: Document, path: Iterable[str | int]) -> Any:  # noqa: ANN401 (YAML holds anything)
    """What stands at `path`, or None."""
    value = document.value
    try:
        for part in path:
            value = value[part]
    except (LookupError, TypeError):
        return None
    return value


def _line(problem: Problem) -> tuple[int, int]:
    return (problem.where.line, problem.where.column) if problem.where else (0, 0)


def _told(document: Document, fault: ErrorDetails) -> bool:
    """Whether the document itself has told this fault: a missing value is None there."""
    path = fault["loc"]
    return path in document.places and value_at(document, path) is None


def _meant(model: type[Written], fault: ErrorDetails) -> tuple[str | int, ...] | None:
    """The key that an unknown one is a misspelling of: that it is missing need not be told."""
    path = fault["loc"]
    if fault["type"] != "extra_forbidden":
        return None
    near = nearest(str(path[-1]), _keys(model, path[:-1]))
    return (*path[:-1], near) if near else None


def _problem(model: type[Written], document: Document, fault: ErrorDetails) -> Problem:
    path, kind, found = fault["loc"], fault["type"], fault["input"]
    at_key = path and path[-1] == _KEY
    where = document.where(*path[:-1]) if at_key else document.where_value(*path)
    context: dict[str, Any] = fault.get("ctx") or {}
    match kind:
        case "manifest":
            return Problem(context["message"], where, context["hint"])
        case "extra_forbidden":
            known = _keys(model, path[:-1])
            hint = near_or_known(str(path[-1]), known)
            return Problem(f"unknown key {str(path[-1])!r}", document.where(*path), hint)
        case "missing":
            return Problem(
                f"key {str(path[-1])!r} is missing", document.where(*path[:-1]), "docs/manifest.md has every key"
            )
        case "literal_error":
            return Problem(f"{found!r} is not {context['expected']}", where, did_you_mean(str(found), _words(context)))
        case "too_short":
            return Problem("wants at least one entry", where, "write one, or remove the key")
        case _:
            wanted = _WANTED.get(kind, kind)
            return Problem(f"wants {wanted}, found {_kind(found)}", where, _spelling(model, fault))


def _spelling(model: type[Written], fault: ErrorDetails) -> str | None:
    """How to write what is wanted."""
    found = fault["input"]
    if fault["type"] == "model_type":
        return f"its keys are {', '.join(_keys(model, fault['loc']))}"
    if fault["type"] == "tuple_type" and isinstance(found, str):
        return f"write it as [{', '.join(found.split())[:60]}]"
    return None


def _words(context: Mapping[str, Any]) -> list[str]:
    return [word.strip("' ") for word in str(context["expected"]).replace(" or ", ",").split(",")]


def _kind(found: object) -> str:
    match found:
        case dict():
            return "keys"
        case tuple():
            return "a list"
        case str():
            return f"{found[:60]!r}"
        case _:
            return "nothing"


def _keys(model: type[Written], path: Iterable[str | int]) -> list[str]:
    """The keys that may stand at `path`."""
    kind: Any = model
    for part in path:
        if isinstance(kind, type) and issubclass(kind, Written):
            kind = _bare(kind.model_fields[str(part)].annotation)
        else:  # a mapping's values, or a list's items
            arguments = typing.get_args(kind)
            kind = _bare(arguments[1] if issubclass(typing.get_origin(kind), Mapping) else arguments[0])
    return list(kind.model_fields)


def _bare(kind: Any) -> Any:  # noqa: ANN401 (a type expression)
    """A type without `| None`."""
    choices = [choice for choice in typing.get_args(kind) if choice is not type(None)]
    return choices[0] if type(None) in typing.get_args(kind) else kind
