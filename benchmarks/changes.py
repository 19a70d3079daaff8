"""A change of an image: what of it, by which edits of the project's files or arguments of the build."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGE, SECOND = "rocm7.14", "rocm7.2"  # the second stands on a base that ships vLLM
OWN, OTHER, SHARED = f"images/{IMAGE}.yaml", f"images/{SECOND}.yaml", "images/shared/vime.yaml"
PATCH = "images/patches/vime/engine-mask.patch"

Edit = tuple[str, str, str]  # a file, what stands there, what then stands there


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change.

    Attributes:
        part: what of the image it changes, as `reads.READS` names it; several by spaces.
        keys: of the manifest, with a star for a name or a number.
        edits: of files of the project.
        arguments: of the build, where a base, a target or a wheel is another.
    """

    what: str
    part: str
    keys: tuple[str, ...] = ()
    image: str = IMAGE
    edits: tuple[Edit, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()

    def apply(self, project: Path) -> None:
        for name, old, new in self.edits:
            path = project / name
            text = path.read_text("utf-8")
            if old not in text:
                raise SystemExit(f"{self.what}: {name} no longer has {old!r}")
            path.write_text(text.replace(old, new, 1), "utf-8")


def program(name: str) -> Change:
    path, first = f"builder/inside/{name}.py", '"""'
    return Change(what=f"{name}.py", part=f"{name}.py", edits=((path, first, f"# Another word.\n{first}"),))


def edit(  # noqa: PLR0913 (each is one fact of the row)
    what: str, part: str, keys: str, old: str, new: str, *, path: str = OWN
) -> Change:
    image = SECOND if path == OTHER else IMAGE
    return Change(what=what, part=part, keys=tuple(keys.split()), image=image, edits=((path, old, new),))


def more(what: str, part: str, keys: str, under: str, *lines: str, path: str = OWN) -> Change:
    """An entry more, as the first one under a key."""
    return edit(what, part, keys, f"\n{under}:\n", "".join(f"{line}\n" for line in (f"\n{under}:", *lines)), path=path)


def first(what: str, part: str, keys: str, key: str, *lines: str) -> Change:
    """A key that the manifest does not have, with an entry."""
    return edit(what, part, keys, "\nremoved:\n", "\n".join([f"\n{key}:", *lines, "", "removed:\n"]))


def without(*tools: str) -> tuple[Edit, ...]:
    text = (ROOT / SHARED).read_text("utf-8")
    found = [re.search(rf"^  {tool}:\n(?:    .*\n)+", text, re.MULTILINE) for tool in tools]
    return tuple((SHARED, entry[0], "") for entry in found if entry)


def repinned() -> tuple[Edit, Edit]:
    """Another word of the patch's prose, and the digest that belongs to it."""
    old = (ROOT / PATCH).read_text("utf-8")
    new = f"Another word.\n{old}"
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (old, new)]
    return (PATCH, old, new), (SHARED, digests[0], digests[1])
