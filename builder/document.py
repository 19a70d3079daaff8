"""What a YAML file says, each key and value with its place; and what one file says over another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.errors import Location, Problem

KeyPath = tuple["str | int", ...]


class Place(NamedTuple):
    """Where a value stands, and its key if it has one; a scalar's `start` and `end` index the text."""

    value: Location
    key: Location | None
    start: int
    end: int


class Document(NamedTuple):
    """One file: nested dicts, tuples and texts, and the faults that do not hide the rest.

    A value that is missing is None in `value`, and its problem is in `problems`. `texts` has each file that the value
    comes from: one, or one over another.
    """

    path: Path
    texts: dict[Path, str]
    value: Any
    problems: tuple[Problem, ...]
    places: dict[KeyPath, Place]

    def over(self, other: Document) -> Document:
        """Both as one: keys of both are joined, and what else this one says stands in place of what the other says."""
        hidden = {path for path in self.places if path in other.places and not self._joins(other, path)}
        seen = {
            path: place
            for path, place in other.places.items()
            if not any(path[:end] in hidden for end in range(len(path) + 1))
        }
        value = _joined(self.value, other.value)
        problems = (*self.problems, *other.problems)
        return Document(self.path, other.texts | self.texts, value, problems, seen | self.places)

    def _joins(self, other: Document, path: KeyPath) -> bool:
        return isinstance(_at(self.value, path), dict) and isinstance(_at(other.value, path), dict)

    def where(self, *path: str | int) -> Location:
        """The place of a key (of an item in a list: its value); of what is not there, its parent's."""
        place = self._nearest(path)
        return place.key or place.value

    def where_value(self, *path: str | int) -> Location:
        """The place of a value; of what is not there, its parent's key."""
        place = self.places.get(path)
        return place.value if place else self.where(*path)

    def scalar(self, *path: str | int) -> str:
        """A scalar as its file has it, quotes included.

        Raises:
            KeyError: where no such value stands.
        """
        place = self.places[path]
        return self.texts[place.value.path][place.start : place.end]

    def rewritten(self, scalars: Mapping[KeyPath, str]) -> dict[Path, str]:
        """The texts of all files with other scalars in them, as written; every other character stays."""
        texts = dict(self.texts)
        for path in sorted(scalars, key=lambda path: -self.places[path].start):  # from the end: the rest stays in place
            place = self.places[path]
            file = place.value.path
            texts[file] = texts[file][: place.start] + scalars[path] + texts[file][place.end :]
        return texts

    def _nearest(self, path: KeyPath) -> Place:
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def _joined(upper: object, lower: object) -> object:
    """What only `upper` has stands first; the rest in the order of `lower`."""
    if not (isinstance(upper, dict) and isinstance(lower, dict)):
        return upper
    own = {name: value for name, value in upper.items() if name not in lower}
    return own | {name: _joined(upper[name], value) if name in upper else value for name, value in lower.items()}


def _at(value: Any, path: KeyPath) -> object:  # noqa: ANN401 (YAML holds anything)
    for part in path:
        value = value[part]
    return value
