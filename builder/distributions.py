"""Names, versions and wheels of distributions, as packaging reads them.

packaging takes as long to import as all of a manifest takes to be read: it is asked of what is spelt in an unusual way.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache

# Each is a part of what packaging takes.
CANONICAL_VERSION = (
    r"v?[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?"
)
PLAIN_SPECIFIER = r"(?:[<>]=?|[=!]=)[0-9]+(?:\.[0-9]+)*"


@lru_cache(maxsize=1024)
def canonical(name: str) -> str:
    """A name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def covers(pattern: str, name: str) -> bool:
    """Whether a name is the one, or has the form, that a pattern with stars stands for."""
    wanted, found = canonical(pattern), canonical(name)
    return fnmatch.fnmatchcase(found, wanted) if "*" in wanted else found == wanted


def is_version(text: str) -> bool:
    if re.fullmatch(CANONICAL_VERSION, text):
        return True
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def is_specifier(text: str) -> bool:
    """Whether it says which versions: one clause or more."""
    if re.fullmatch(PLAIN_SPECIFIER, text):
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    try:
        return len(SpecifierSet(text)) > 0
    except InvalidSpecifier:
        return False


def is_requirement(text: str) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415

    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return True


def same_release(version: str, other: str) -> bool:
    """Whether two versions are one but for what a build has put behind a `+`."""
    from packaging.version import Version  # noqa: PLC0415

    return Version(version).public == Version(other).public


def wheel(file: str) -> tuple[str, frozenset[str]] | None:
    """The version and the interpreters that a wheel's file name tells; None where it is no such name."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    try:
        _, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return None
    return str(version), frozenset(tag.interpreter for tag in tags)
