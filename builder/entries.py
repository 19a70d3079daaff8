"""The entries of a manifest: what may stand under its keys, and what follows from each alone."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 (pydantic reads the annotations)
from typing import Annotated, Literal
from urllib.parse import unquote

import annotated_types
import pydantic

from builder import consistency, distributions, schema
from builder import vocabulary as v

UNKNOWN = v.UNKNOWN
AtLeastOne = annotated_types.MinLen(1)


class Reasoned(schema.Written):
    """A choice that says why."""

    reason: v.Text


class Chosen(Reasoned):
    """A distribution of the base; an optional one may be absent."""

    optional: v.Boolean = False


class Constraint(Reasoned):
    """What versions a plan may take."""

    version: v.Specifier


class Override(Reasoned):
    """One version, installed without dependencies whatever else is asked for."""

    version: v.ExactVersion


class BuildTool(schema.Written):
    """One wheel by its hash: a program that works on the image."""

    version: v.ExactVersion
    sha256: v.Sha256
    reason: v.Text | None = None


class Link(Reasoned):
    """A symbolic link to `to`."""

    to: v.AbsolutePath


class Variable(Reasoned):
    """A variable of the image."""

    value: v.EnvValue


class Base(schema.Written):
    """The image that everything is built on, and the name of the facts about it."""

    image: v.ImageName
    digest: v.Digest
    facts: v.FactsName

    @property
    def reference(self) -> str:
        """What FROM names; without a digest while that is unknown."""
        return self.image if self.digest == UNKNOWN else f"{self.image}@{self.digest}"


class Requirements(schema.Written):
    """A source's requirement file, and what is changed in it before it is resolved; without a file, what is added."""

    file: v.RelativePath | None = None
    without: Mapping[v.Distribution, Reasoned] = pydantic.Field(default_factory=dict)
    add: Mapping[v.Distribution, Constraint] = pydantic.Field(default_factory=dict)


class Patch(schema.Written):
    """A patch by its path: in the tree of `source`, or in this project where none is named."""

    path: v.PatchPath
    source: v.SourceName | None = None
    sha256: v.Sha256 | None = None


class Source(schema.Written):
    """One git coordinate and how it is installed; of a shipped one, the base already has what was built from it."""

    recipe: Literal["wheel", "editable", "shipped"]
    repository: v.Repository
    commit: v.Commit
    distribution: v.Distribution
    modules: Annotated[tuple[v.Module, ...], AtLeastOne]
    tag: v.Tag | None = None
    submodules: v.Boolean = False
    build_env: Mapping[v.EnvName, Variable] = pydantic.Field(default_factory=dict)
    device_code: tuple[v.Module, ...] = ()
    requirements: Requirements | None = None
    patches: tuple[Patch, ...] = ()
    imports_from: tuple[v.SourceName, ...] = ()
    tests: tuple[v.RelativePath, ...] = ()
    unused: Mapping[v.FileGlob, Reasoned] = pydantic.Field(default_factory=dict)

    _name: str = pydantic.PrivateAttr(default="")

    @property
    def name(self) -> str:
        """The key under `sources`."""
        return self._name

    @property
    def checkout(self) -> str:
        """Where its tree stands in the image."""
        return consistency.checkout(self.repository)

    @property
    def commit_argument(self) -> str:
        """The build argument that carries its commit."""
        return f"{self.name.upper()}_COMMIT"

    @property
    def public_version(self) -> str | None:
        """The version that its tag names; a tag such as v2.15_rocm names none."""
        return self.tag.removeprefix("v") if self.tag and distributions.is_version(self.tag) else None

    @property
    def packages(self) -> tuple[str, ...]:
        """The top-level packages of its modules."""
        return tuple(dict.fromkeys(module.partition(".")[0] for module in self.modules))

    def step(self, kind: str) -> str:
        """The name of one of its steps, such as BUILD_VLLM or VLLM_REQUIREMENTS."""
        return f"{kind}_{self.name.upper()}"


class Prebuilt(Reasoned):
    """A wheel by its address, which no index vouches for: installed by hash, without dependencies, and sealed."""

    address: v.WheelAddress
    sha256: v.Sha256OrUnknown
    modules: Annotated[tuple[v.Module, ...], AtLeastOne]

    @property
    def reference(self) -> str:
        """What pip is given; without a hash, which pip then refuses, while that is unknown."""
        return self.address if self.sha256 == UNKNOWN else f"{self.address}#sha256={self.sha256}"

    @property
    def file(self) -> str:
        """The name of the file."""
        return unquote(self.address.rpartition("/")[2])

    @property
    def version(self) -> str:
        """The version that the file's name tells."""
        return self._named[0]

    @property
    def pythons(self) -> frozenset[str]:
        """The interpreters that it is for, as wheels name them."""
        return self._named[1]

    @property
    def _named(self) -> tuple[str, frozenset[str]]:
        named = distributions.wheel(self.file)
        assert named  # noqa: S101 - the address is one of a wheel
        return named


def wheel_argument(distribution: str) -> str:
    """The build argument that carries a prebuilt wheel."""
    return f"{_upper(distribution)}_WHEEL"


def install_step(distribution: str) -> str:
    """The step that installs a prebuilt wheel."""
    return f"INSTALL_{_upper(distribution)}"


def _upper(distribution: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", distribution.upper())
