"""YAML as the text that stands in the file, each key and value with its place.

PyYAML's constructor would turn 7.10 into 7.1 and a commit of digits into a number: only its events are read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import yaml

from builder.document import Document, Place
from builder.errors import Location, ManifestError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from builder.document import KeyPath

LARGEST = 256_000  # bytes; PyYAML needs some seconds for them
LONGEST = 4_096  # characters of one value; no pattern that reads values is slow on so few
DEEPEST = 16  # levels; a manifest has six

# What editors do not show, or show elsewhere than it stands; a lone CR ends a line for YAML alone.
_UNSEEN = (
    r"[^\t\n\r\x20-\x7e\xa0-\U0010ffff]|\r(?!\n)"
    r"|[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufffe\uffff]"
)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_HINTS = {
    "mapping values are not allowed here": "a text with ': ' in it needs quotes",
    "could not find expected ':'": "a key is followed by ': '",
}

_Event = Any  # PyYAML's events and marks have no types
_Loader = Callable[[str], Any]
# libyaml reads ten times as fast; not every PyYAML was built with it.
_FAST: _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(path: Path) -> Document:
    """The document at `path`.

    Raises:
        ManifestError: where the file cannot be read, or is no YAML that this project takes.
    """
    return parse(content(path), path)


def content(path: Path) -> bytes:
    """What the file at `path` holds, as far as anything here is read.

    Raises:
        ManifestError: where it cannot be read.
    """
    try:
        if not path.is_file():
            raise ManifestError(Problem(f"no file {str(path)!r}", hint=f"see what is there: ls {str(path.parent)!r}"))
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise ManifestError(
            Problem(f"cannot read {str(path)!r}: {error.strerror}", hint=f"see whose it is: ls -l {str(path)!r}")
        ) from None


@lru_cache(maxsize=8)  # images share files
def parse(content: bytes, path: Path) -> Document:
    """The document that `content` is; `path` is named in messages only.

    Raises:
        ManifestError: where nothing sensible could be said about the rest of the file.
    """
    text = _text(content, path)
    reader = _Reader(path, text, _FAST)
    try:
        try:
            value = reader.document()
        except (ManifestError, yaml.YAMLError):  # PyYAML's own scanner has the words and places that people are told
            reader = _Reader(path, text)
            value = reader.document()
    except yaml.MarkedYAMLError as error:
        raise ManifestError(*reader.problems, _syntax_problem(error, path, text)) from None
    except yaml.YAMLError as error:
        raise ManifestError(*reader.problems, Problem(f"not YAML: {error}", Location(path, 1))) from None
    return Document(path, {path: text}, value, tuple(reader.problems), reader.places)


def _text(content: bytes, path: Path) -> str:
    if len(content) > LARGEST:
        raise ManifestError(
            Problem(
                f"file is larger than {LARGEST:,} bytes",
                Location(path, 1),
                "what images share is in a file that they extend",
            )
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        where = _place(path, before, len(before))
        message = f"byte 0x{content[error.start]:02x} is not UTF-8"
        raise ManifestError(Problem(message, where, "save the file as UTF-8")) from None
    if text.replace("\n", "").replace("\t", "").isprintable():  # so is every file that has no fault
        return text
    unseen = [
        Problem(
            f"character U+{ord(found[0]):04X} is not allowed",
            _place(path, text, found.start()),
            "delete it; in double quotes it is written as an escape",
        )
        for found in itertools.islice(re.finditer(_UNSEEN, text), 20)
    ]
    if unseen:
        raise ManifestError(*unseen)
    return text


def _place(path: Path, text: str, index: int) -> Location:
    return Location(path, text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _syntax_problem(error: yaml.MarkedYAMLError, path: Path, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    where = Location(path, mark.line + 1, mark.column + 1) if mark else Location(path, 1)
    if mark and text[mark.index : mark.index + 1] == "\t":
        return Problem("a tab cannot indent", where, "write spaces")
    problem = error.problem or "not YAML"
    began = f" from line {error.context_mark.line + 1}" if error.context_mark else ""
    context = f" ({error.context}{began})" if error.context else ""
    return Problem(f"{problem}{context}", where, _HINTS.get(problem))


class _Reader:
    """Values from PyYAML's events; depth is counted here, so no file can exhaust the stack."""

    def __init__(self, path: Path, text: str, loader: _Loader = yaml.SafeLoader) -> None:
        self.path = path
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []
        self._loader = loader(text)

    def document(self) -> object:
        """The mapping that the file holds."""
        self._next()  # the stream's start
        start = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            raise ManifestError(
                Problem("file is empty", Location(self.path, 1), f"get it back: git checkout -- {str(self.path)!r}")
            )
        if start.version or start.tags:
            self._tell("a directive is not allowed", self._at(start.start_mark), "delete it")
        first = self._next()
        if not isinstance(first, yaml.MappingStartEvent):
            found = _kind(first)
            raise ManifestError(
                Problem(f"wants keys at the top, found {found}", self._at(first.start_mark), "as in `summary: ...`")
            )
        value = self._value(first, (), None)
        self._next()  # the document's end
        after = self._next()
        if isinstance(after, yaml.DocumentStartEvent):
            problem = Problem("a second document begins", self._at(after.start_mark), "one file, one document")
            raise ManifestError(*self.problems, problem)
        return value

    def _value(self, event: _Event, path: KeyPath, key: Location | None) -> object:
        mark = event.start_mark
        where = self._at(mark)
        self._refuse_marks(event, where)
        self._limit(len(path), event)
        self.places[path] = Place(where, key, mark.index, event.end_mark.index)
        kind = type(event)
        if kind is yaml.ScalarEvent:
            return self._scalar(event, where, key)
        if kind is yaml.MappingStartEvent:
            return self._mapping(path)
        return self._list(path) if kind is yaml.SequenceStartEvent else None  # an alias, refused above

    def _tell(self, message: str, where: Location, hint: str | None = None) -> None:
        self.problems.append(Problem(message, where, hint))

    def _refuse_marks(self, event: _Event, where: Location) -> None:
        if type(event) is yaml.AliasEvent:
            self._tell(f"alias '*{event.anchor}' is not allowed", where, "write the value out")
            return
        if event.anchor is not None:
            self._tell(f"anchor '&{event.anchor}' is not allowed", where, "delete it")
        if event.tag is not None:
            self._tell(f"tag {event.tag!r} is not allowed", where, "delete it")

    def _scalar(self, event: _Event, where: Location, key: Location | None) -> str | None:
        text: str = event.value
        if not event.style and text in _NULLS:
            place = where if text else key or where
            self._tell("missing value", place, 'write one, or delete the key; "" is an empty text')
            return None
        unseen = () if text.isprintable() else [x for x in text if x != "\n" and not x.isprintable()]
        if unseen:
            self._tell(f"character U+{ord(unseen[0]):04X} is not allowed", where)
            return None
        if len(text) > LONGEST:
            self._tell(f"value has {len(text):,} characters", where, f"at most {LONGEST:,}")
            return None
        return text

    def _list(self, path: KeyPath) -> tuple[object, ...]:
        items: list[object] = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            items.append(self._value(event, (*path, len(items)), None))
        return tuple(items)

    def _mapping(self, path: KeyPath) -> dict[str, object]:
        mapping: dict[str, object] = {}
        lines: dict[str, int] = {}
        while type(event := self._next()) is not yaml.MappingEndEvent:
            where = self._at(event.start_mark)
            name = self._key(event, path, where)
            known = name is not None and name in lines
            if known:
                message = f"key {name!r} stands in line {lines[name or '']} already"
                self._tell(message, where, "keep one of the two")
            if name is None or known:
                self._skip(self._next(), len(path))
                continue
            lines[name] = where.line
            mapping[name] = self._value(self._next(), (*path, name), where)
        return mapping

    def _key(self, event: _Event, path: KeyPath, where: Location) -> str | None:
        """The key's text; None where it is none, with its problem told."""
        self._refuse_marks(event, where)
        if not isinstance(event, yaml.ScalarEvent):
            if not isinstance(event, yaml.AliasEvent):
                self._tell(f"a key is a text, found {_kind(event)}", where)
                self._skip(event, len(path))
            return None
        if not event.style and event.value == "<<":
            self._tell("merge key '<<' is not allowed", where, "write the keys out")
            return None
        if not event.style and event.value in _NULLS:
            self._tell("missing key", where)
            return None
        if not event.value.isprintable():
            self._tell(f"key {event.value!r} is not printable", where)
            return None
        return str(event.value)

    def _skip(self, event: _Event, above: int) -> None:
        """Read past a value that counts for nothing and has `above` levels over it."""
        depth = 0
        while True:
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth == 0:
                return
            self._limit(above + depth, event)
            event = self._next()

    def _limit(self, depth: int, event: _Event) -> None:
        if depth > DEEPEST:
            problem = Problem(f"nested deeper than {DEEPEST} levels", self._at(event.start_mark), "no key is so deep")
            raise ManifestError(*self.problems, problem)

    def _next(self) -> _Event:
        try:
            return self._loader.get_event()
        except (OverflowError, ValueError):  # from int() or chr()
            message = "not YAML: the number in an escape or a directive is too large"
            problem = Problem(message, self._at(self._loader.get_mark()), "write the character itself")
            raise ManifestError(*self.problems, problem) from None

    def _at(self, mark: _Event) -> Location:
        return Location(self.path, mark.line + 1, mark.column + 1)


def _kind(event: _Event) -> str:
    kinds = {yaml.SequenceStartEvent: "a list", yaml.MappingStartEvent: "keys"}
    return kinds.get(type(event), "a text")
