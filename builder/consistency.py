"""What must hold between the parts of a manifest, whatever else is wrong with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from builder.distributions import canonical, covers
from builder.errors import Problem
from builder.schema import near_or_known, value_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from builder.document import Document

# Two lists that may not name the same distribution, and why. The fault is shown in the second.
_APART = (
    ("sealed", "forbidden", "a sealed distribution is one that the image keeps"),
    ("sealed", "constraints", "the seal already holds its exact version"),
    ("sealed", "overrides", "the seal already holds its exact version"),
    ("sealed", "build_tools", "a sealed distribution is one that the image keeps"),
    ("sealed", "source_builds", "a sealed distribution is one that the image keeps"),
    ("sealed", "removed", "a sealed distribution is one that the image keeps"),
    ("forbidden", "overrides", "an override is installed, a forbidden distribution never"),
    ("forbidden", "build_tools", "a build tool is installed, a forbidden distribution never"),
    ("forbidden", "source_builds", "a source build is installed, a forbidden distribution never"),
    ("sealed", "prebuilt", "a prebuilt wheel joins the seal when it is installed"),
    ("forbidden", "prebuilt", "a prebuilt wheel is installed, a forbidden distribution never"),
    ("constraints", "prebuilt", "the file's name already says its version"),
    ("constraints", "overrides", "an override is installed as it stands; say its version there alone"),
)
_BY_NAME = (
    *("sealed", "forbidden", "constraints", "overrides"),
    *("source_builds", "build_tools", "removed", "pip_check", "prebuilt"),
)

# Bash expands or runs these, the loader and Python load what they name; git, pip and uv read options from theirs.
_RUN = re.compile(
    r"BASH_ENV|BASH_FUNC_.*|BASHOPTS|ENV|IFS|PROMPT_COMMAND|PS4|SHELLOPTS|LD_AUDIT|LD_PRELOAD|PYTHONHOME|PYTHONSTARTUP"
    r"|(?:GIT|PIP|UV)_.*|[a-zA-Z]+_(?:proxy|PROXY)"
)
_OF_FETCHED = {"build_env", "imports_from", "patches", "requirements", "submodules", "tests", "unused"}


def problems(document: Document) -> Iterator[Problem]:
    """Every fault between keys of a manifest; faults within a value are the models'."""
    yield from _names_written_twice(document)
    yield from _names_in_two_lists(document)
    yield from _variables(document)
    yield from _gpu_targets(document)
    yield from _prebuilt(document)
    yield from _sources(document)


def _named(document: Document, *path: str | int) -> dict[str, Any]:
    found = value_at(document, path)
    return found if isinstance(found, dict) else {}


def _listed(document: Document, *path: str | int) -> list[tuple[int, str]]:
    """The texts in the list at `path`, each with its index."""
    found = value_at(document, path)
    items = found if isinstance(found, tuple) else ()
    return [(index, item) for index, item in enumerate(items) if isinstance(item, str)]


def _names_written_twice(document: Document) -> Iterator[Problem]:
    paths: list[tuple[str, ...]] = [(name,) for name in _BY_NAME]
    for source in _named(document, "sources"):
        paths += [("sources", source, "requirements", "without"), ("sources", source, "requirements", "add")]
    for path in paths:
        seen: dict[str, str] = {}
        for name in _named(document, *path):
            first = seen.setdefault(canonical(name), name)
            if first != name:
                line = document.where(*path, first).line
                message = f"{name!r} and {first!r} (line {line}) are the same distribution"
                yield Problem(message, document.where(*path, name), "keep one")


def _names_in_two_lists(document: Document) -> Iterator[Problem]:
    for first, second, reason in _APART:
        for name, other in _overlapping(_named(document, second), _named(document, first)):
            line = document.where(first, other).line
            message = f"{name!r} is in {second} and in {first} (line {line})"
            yield Problem(message, document.where(second, name), f"{reason}; keep one")


def _overlapping(names: Iterable[str], others: Collection[str]) -> Iterator[tuple[str, str]]:
    """The pairs that overlap; few names do, and of most that is known without a look at each pair."""
    plain = {canonical(other) for other in others}
    patterns = [other for other in others if "*" in other]
    for name in names:
        if "*" in name or canonical(name) in plain or any(covers(pattern, name) for pattern in patterns):
            yield from ((name, other) for other in others if _overlap(name, other))


def _overlap(name: str, other: str) -> bool:
    """Whether one pattern covers the other; two patterns that merely may meet do not count."""
    return covers(other, name) or covers(name, other)


def _variables(document: Document) -> Iterator[Problem]:
    for second in ("dropped_env", "forbidden_env"):
        for name in _named(document, second):
            if name in _named(document, "env"):
                line = document.where("env", name).line
                message = f"{name!r} is in {second} and in env (line {line})"
                yield Problem(message, document.where(second, name), "keep one")

    for name in _named(document, "env"):
        if value_at(document, ("env", name, "value")) == "native":
            message = f"{name} is `native`, which is the GPU of whoever builds the image"
            yield Problem(message, document.where("env", name, "value"), "name the GPU targets")
    builds = [("sources", name, "build_env") for name in _named(document, "sources")]
    for path in [("env",), *builds]:
        for name in _named(document, *path):
            if _RUN.fullmatch(name):
                message = f"{name} makes its value a command, or an option of another program"
                yield Problem(
                    message, document.where(*path, name), "delete it: what runs in the image, its sources say"
                )


def _gpu_targets(document: Document) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, target in _listed(document, "gpu_targets"):
        if target in seen:
            yield Problem(f"{target!r} is written twice", document.where("gpu_targets", index), "keep one")
        seen.add(target)


def _prebuilt(document: Document) -> Iterator[Problem]:
    for name in _named(document, "prebuilt"):
        address = value_at(document, ("prebuilt", name, "address"))
        file = unquote(address.rpartition("/")[2]) if isinstance(address, str) else ""
        if file.count("-") and canonical(file.partition("-")[0]) != canonical(name):
            hint = f"call it {canonical(file.partition('-')[0])!r}, or give the address of a wheel of {name!r}"
            yield Problem(f"{file} is no wheel of {name!r}", document.where_value("prebuilt", name, "address"), hint)


def _sources(document: Document) -> Iterator[Problem]:
    for name in _named(document, "sources"):
        consumed = _listed(document, "sources", name, "imports_from")
        for index, _ in consumed:
            # A provider may be installed later: the window is compared when all sources are there.
            yield from _other_source(document, name, ("imports_from", index))
        patches = value_at(document, ("sources", name, "patches"))
        for index in range(len(patches) if isinstance(patches, tuple) else 0):
            yield from _other_source(document, name, ("patches", index, "source"), earlier=True)
            yield from _hash_of_a_commit(document, ("sources", name, "patches", index))
        if _named(document, "sources", name, "unused") and not consumed:
            where = document.where("sources", name, "unused")
            yield Problem("unused waives nothing", where, "it goes with imports_from")
        if value_at(document, ("sources", name, "recipe")) == "shipped":
            yield from _shipped(document, name)
        else:
            yield from _installs(document, name)
    yield from _same_value(document, "repository", "checkout", checkout)
    yield from _same_value(document, "distribution", "distribution", canonical)


def _other_source(
    document: Document, name: str, path: tuple[str | int, ...], *, earlier: bool = False
) -> Iterator[Problem]:
    """Whether what stands at `path` under source `name` is another source, and an earlier one."""
    other = value_at(document, ("sources", name, *path))
    where = document.where_value("sources", name, *path)
    order = list(_named(document, "sources"))
    if not isinstance(other, str):
        return
    if other == name:
        yield Problem(f"source {name!r} names itself", where, "name another source, or remove the line")
    elif other not in order:
        hint = near_or_known(other, order)
        yield Problem(f"no source is called {other!r}", where, hint)
    elif earlier and order.index(other) > order.index(name):
        line = document.where("sources", other).line
        message = f"source {other!r} (line {line}) stands after {name!r}"
        yield Problem(message, where, f"sources are fetched in this order: move {other!r} before {name!r}")


def _hash_of_a_commit(document: Document, path: tuple[str | int, ...]) -> Iterator[Problem]:
    """Where a patch has a hash of its own though its source's commit already says which bytes it has."""
    patch = _named(document, *path)
    if isinstance(patch.get("source"), str) and "sha256" in patch:
        message = f"a patch from the tree of {patch['source']!r} has its hash in that source's commit"
        yield Problem(message, document.where_value(*path, "sha256"), "leave sha256 out")


def _shipped(document: Document, name: str) -> Iterator[Problem]:
    """Where a source that the base brings is not kept, or is to be worked on: nothing of it is fetched."""
    distribution = value_at(document, ("sources", name, "distribution"))
    kept = [pattern for pattern in _named(document, "sealed") if _overlap(str(distribution), pattern)]
    if isinstance(distribution, str) and not kept:
        where = document.where_value("sources", name, "distribution")
        yield Problem(f"{distribution!r} is not sealed", where, "the base ships it: a step could replace it unseen")
    for key in sorted(_OF_FETCHED & set(_named(document, "sources", name))):
        where = document.where("sources", name, key)
        hint = "remove the line; or let the image install the source: another recipe than shipped"
        yield Problem(f"{key} wants a source that the image installs", where, hint)


def _installs(document: Document, name: str) -> Iterator[Problem]:
    """Where a source brings what the base has to keep, or what nothing may bring."""
    path: tuple[str, ...] = ("sources", name, "distribution")
    distribution = value_at(document, path)
    if isinstance(distribution, str):
        yield from _covered(document, ("sealed",), distribution, path)
    added = _named(document, "sources", name, "requirements", "add")
    for other in added:
        path = ("sources", name, "requirements", "add", other)
        yield from _covered(document, ("sealed", "forbidden"), other, path)
        if other in _named(document, "sources", name, "requirements", "without"):
            yield Problem(f"{other!r} is taken out and added", document.where(*path), "keep one")


def _covered(document: Document, lists: tuple[str, ...], name: str, path: tuple[str, ...]) -> Iterator[Problem]:
    for key in lists:
        for pattern in _named(document, key):
            if _overlap(name, pattern):
                line = document.where(key, pattern).line
                where = document.where_value(*path) if path[-1] == "distribution" else document.where(*path)
                yield Problem(f"{name!r} is {key} (line {line})", where, f"remove it here, or {pattern} there")


def in_tag(name: str) -> str:
    """An image's name as its tags have it: a tag takes no `+`, and not every disk tells capitals apart."""
    return name.lower().replace("+", "_")


def checkout(repository: str) -> str:
    """Where a repository stands in the image."""
    return "/opt/" + repository.rstrip("/").rpartition("/")[2].removesuffix(".git")


def _same_value(document: Document, key: str, what: str, form: Any) -> Iterator[Problem]:  # noqa: ANN401
    seen: dict[str, str] = {}
    for name in _named(document, "sources"):
        value = value_at(document, ("sources", name, key))
        if not isinstance(value, str):
            continue
        first = seen.setdefault(form(value), name)
        if first != name:
            message = f"sources {first!r} and {name!r} have one {what}: {form(value)}"
            yield Problem(
                message, document.where_value("sources", name, key), f"give one of them another {key}, or remove it"
            )
