"""What an image's records have to look like to be read: whoever made it wrote them, and may have meant harm."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (pydantic reads the annotations)
from typing import Annotated, Any, TypeVar

import pydantic

from builder.errors import ForgedRecordError, Problem
from builder.report import Outcome  # noqa: TC001 (pydantic reads the annotations)

T = TypeVar("T")
Text = Annotated[str, pydantic.StringConstraints(max_length=1000)]
SHOWN = 200  # characters of what is wrong with one
_HINT = "it was made or changed by somebody else, or a disk is broken: build it anew: python -m builder image --help"


class Record(pydantic.BaseModel):
    """What is read of a record; it may have more."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True, extra="ignore")


class Tool(Record):
    version: Text
    sha256: Text


class Wheel(Record):
    sha256: Text


class Manifest(Record):
    """The manifest that an image carries."""

    base: Mapping[Text, Any]
    sources: Mapping[Text, Mapping[Text, Any]]
    build_tools: Mapping[Text, Tool] = pydantic.Field(default_factory=dict)
    installer: Mapping[Text, Tool] = pydantic.Field(default_factory=dict)
    prebuilt: Mapping[Text, Wheel] = pydantic.Field(default_factory=dict)


class Policy(Record):
    steps: tuple[Text, ...]


class Patch(Record):
    path: Text
    sha256: Text


class Source(Record):
    """What was fetched."""

    repository: Text
    commit: Text
    tag: Text | None = None
    distribution: Text | None = None
    checkout: Text | None = None
    patches: tuple[Patch, ...] = ()


class Planned(Record):
    name: Text
    version: Text
    sha256: Text | None = None


class Plan(Record):
    """What was judged and then installed."""

    distributions: tuple[Planned, ...]


class Check(Record):
    name: Text
    outcome: Outcome


class Verification(Record):
    checks: tuple[Check, ...]


class Sealed(Record):
    version: Text
    step: Text


class Seal(Record):
    distributions: Mapping[Text, Sealed]


class Python(Record):
    version: Text
    executable: Text
    site_packages: Text


class Distribution(Record):
    version: Text | None
    flavour: Text | None
    requires: tuple[Text, ...]


class Inside(Record):
    """What the program that reads a base answers in a container."""

    python: Python
    system: Text | None
    distributions: Mapping[Text, Distribution]
    device_code: tuple[Text, ...] | None
    rocm_root: Text | None
    tools: tuple[Text, ...]
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
