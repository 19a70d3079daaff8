"""What an image's records have to look like to be read: whoever made it wrote them, and may have meant harm."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (pydantic reads the annotations)
from typing import Any, TypeVar

import pydantic

from builder.errors import ForgedRecordError, Problem
from builder.report import Outcome  # noqa: TC001 (pydantic reads the annotations)

T = TypeVar("T")
SHOWN = 200  # characters of what is wrong with one
_HINT = "it was made or changed by somebody else, or a disk is broken: build it anew: python -m builder image --help"


class Record(pydantic.BaseModel):
    """What is read of a record; it may have more."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True, extra="ignore")


class Tool(Record):
    version: str
    sha256: str


class Wheel(Record):
    sha256: str


class Manifest(Record):
    """The manifest that an image carries."""

    base: Mapping[str, Any]
    sources: Mapping[str, Mapping[str, Any]]
    build_tools: Mapping[str, Tool] = pydantic.Field(default_factory=dict)
    installer: Mapping[str, Tool] = pydantic.Field(default_factory=dict)
    prebuilt: Mapping[str, Wheel] = pydantic.Field(default_factory=dict)


class Policy(Record):
    steps: tuple[str, ...]


class Patch(Record):
    path: str
    sha256: str


class Source(Record):
    """What was fetched."""

    repository: str
    commit: str
    tag: str | None = None
    distribution: str | None = None
    checkout: str | None = None
    patches: tuple[Patch, ...] = ()


class Planned(Record):
    name: str
    version: str
    sha256: str | None = None


class Plan(Record):
    """What was judged and then installed."""

    distributions: tuple[Planned, ...]


class Check(Record):
    name: str
    outcome: Outcome


class Verification(Record):
    checks: tuple[Check, ...]


class Sealed(Record):
    version: str
    step: str


class Seal(Record):
    distributions: Mapping[str, Sealed]


class Python(Record):
    version: str
    executable: str
    site_packages: str


class Distribution(Record):
    version: str | None
    flavour: str | None
    requires: tuple[str, ...]


class Inside(Record):
    """What the program that reads a base answers in a container."""

    python: Python
    system: str | None
    distributions: Mapping[str, Distribution]
    device_code: tuple[str, ...] | None
    rocm_root: str | None
    tools: tuple[str, ...]
    pip_check: tuple[str, ...] | None


def read(content: bytes | str, shape: type[T], what: str) -> T:
    """A record that has the shape of one.

    Args:
        what: which it is, and whose.

    Raises:
        ForgedRecordError: where it has another.
    """
    try:
        return pydantic.TypeAdapter(shape).validate_json(content)
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise forged(what, ": ".join(filter(None, [".".join(map(str, fault["loc"])), fault["msg"]]))) from None


def forged(what: str, fault: str) -> ForgedRecordError:
    """The error that a record is no record of ours."""
    cut = fault if len(fault) <= SHOWN else f"{fault[:SHOWN]}..."
    return ForgedRecordError(Problem(f"{what} is none that we write: {cut}", hint=_HINT))
