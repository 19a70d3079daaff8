"""The manifest of an image: what people write, complete and consistent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence  # noqa: TC003 (pydantic reads the annotations)
from typing import TYPE_CHECKING, Annotated, Literal

import annotated_types
import pydantic

from builder import consistency, located_yaml, schema
from builder import vocabulary as v
from builder.errors import Location, Problem, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from builder.located_yaml import Document

UNKNOWN = v.UNKNOWN
PINS = ("repository", "tag", "commit")  # of a source
Need = Literal["disk_gb", "memory_gb", "minutes"]  # of the machine that builds one target
AtLeastOne = annotated_types.MinLen(1)
# Options of a base's pip configuration that are refused where a sealed name could be resolved, unless listed.
PipOption = Literal["extra-index-url", "force-reinstall", "ignore-installed"]


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
    """A source's requirement file, and what is changed in it before it is resolved."""

    file: v.RelativePath
    without: Mapping[v.Distribution, Reasoned] = pydantic.Field(default_factory=dict)
    add: Mapping[v.Distribution, Constraint] = pydantic.Field(default_factory=dict)


class Patch(schema.Written):
    """A patch by its path: in the tree of `source`, or in this project where none is named."""

    path: v.PatchPath
    source: v.SourceName | None = None
    sha256: v.Sha256 | None = None


class Source(schema.Written):
    """One git coordinate and how it is installed."""

    recipe: Literal["wheel", "editable"]
    repository: v.Repository
    commit: v.Commit
    distribution: v.Distribution
    modules: Annotated[tuple[v.Module, ...], AtLeastOne]
    tag: v.Tag | None = None
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
        """The version that its tag names."""
        return None if self.tag is None else self.tag.removeprefix("v")

    @property
    def packages(self) -> tuple[str, ...]:
        """The top-level packages of its modules."""
        return tuple(dict.fromkeys(module.partition(".")[0] for module in self.modules))

    def step(self, kind: str) -> str:
        """The name of one of its steps, such as BUILD_VLLM or VLLM_REQUIREMENTS."""
        return f"{kind}_{self.name.upper()}"


class Manifest(schema.Written):
    """One image; mappings keep the order of the file."""

    summary: v.Text
    base: Base
    gpu_targets: Annotated[tuple[v.GpuTarget, ...], AtLeastOne]
    needs: Mapping[Need, v.Count] = pydantic.Field(default_factory=dict)
    sealed: Annotated[Mapping[v.DistributionGlob, Chosen], AtLeastOne]
    forbidden: Mapping[v.DistributionGlob, Reasoned] = pydantic.Field(default_factory=dict)
    constraints: Mapping[v.Distribution, Constraint] = pydantic.Field(default_factory=dict)
    overrides: Mapping[v.Distribution, Override] = pydantic.Field(default_factory=dict)
    source_builds: Mapping[v.Distribution, Reasoned] = pydantic.Field(default_factory=dict)
    ignored_pip_options: Mapping[PipOption, Reasoned] = pydantic.Field(default_factory=dict)
    installer: Mapping[Literal["uv"], BuildTool] = pydantic.Field(default_factory=dict)
    build_tools: Mapping[v.Distribution, BuildTool] = pydantic.Field(default_factory=dict)
    removed: Mapping[v.Distribution, Chosen] = pydantic.Field(default_factory=dict)
    links: Mapping[v.AbsolutePath, Link] = pydantic.Field(default_factory=dict)
    executables: Mapping[v.AbsolutePath, Reasoned] = pydantic.Field(default_factory=dict)
    sources: Annotated[Mapping[v.SourceName, Source], AtLeastOne]
    env: Mapping[v.EnvName, Variable] = pydantic.Field(default_factory=dict)
    dropped_env: Mapping[v.EnvName, Reasoned] = pydantic.Field(default_factory=dict)
    forbidden_env: Mapping[v.EnvName, Reasoned] = pydantic.Field(default_factory=dict)
    pip_check: Mapping[v.Distribution, Mapping[v.Distribution, Reasoned]] = pydantic.Field(default_factory=dict)
    workdir: v.AbsolutePath
    entrypoint: Annotated[tuple[v.Text, ...], AtLeastOne]

    _document: Document = pydantic.PrivateAttr()

    @property
    def path(self) -> Path:
        """The file that it was read from, as it was named."""
        return self._document.path

    @property
    def name(self) -> str:
        """The image's name: the file's, without its ending."""
        return self.path.stem

    @property
    def title(self) -> str:
        """The file as the project's documents and the image's messages name it."""
        return f"images/{self.name}.yaml"

    @property
    def dockerfile(self) -> str:
        """The generated file, from the project's root."""
        return f"dockerfiles/Dockerfile.{self.name}"

    def tag(self, targets: Sequence[str]) -> str:
        """The moving tag of the image built for `targets`."""
        return f"vime:{consistency.in_tag(self.name)}-{'-'.join(targets)}"

    def installed_by(self, recipe: str) -> list[Source]:
        """The sources with that recipe, in the order of the file."""
        return [source for source in self.sources.values() if source.recipe == recipe]

    def named_in(self, text: str) -> list[tuple[str | int, ...]]:
        """The keys that a text names with dots, in its order; a top-level key where its file stands before it."""
        paths = {".".join(map(str, path)): path for path in self._document.places if path}
        names = [re.escape(name) for name in sorted(paths, key=len, reverse=True)]  # of two that fit, the longer
        dotted = "|".join(name for name in names if r"\." in name)
        single = "|".join(name for name in names if r"\." not in name)
        pattern = rf"(?<![\w./-])(?:{dotted})(?![\w*-])|(?:{re.escape(self.title)}, | or )(?P<key>{single})$"
        return [paths[found["key"] or found[0]] for found in re.finditer(pattern, text, re.MULTILINE)]

    def where(self, *path: str | int) -> Location:
        """The place of a key in the file; of what is not written there, its parent's."""
        return self._document.where(*path)

    def span(self, *path: str | int) -> tuple[int, int]:
        """Where a scalar's characters begin and end in the file, quotes included."""
        return self._document.span(*path)

    def __eq__(self, other: object) -> bool:
        # Where a value stands is no part of what it says.
        return isinstance(other, Manifest) and (self.name, self.model_dump()) == (
            other.name,
            other.model_dump(),
        )

    __hash__ = None  # type: ignore[assignment]  # it holds mappings


def load(path: Path) -> Manifest:
    """The manifest at `path`, complete and consistent.

    Raises:
        ManifestError: with every fault found, each at its line and column.
    """
    return _read(located_yaml.load(path))


def parse(content: bytes, path: Path) -> Manifest:
    """The manifest that `content` would be if it stood at `path`.

    Raises:
        ManifestError: with every fault found, each at its line and column.
    """
    return _read(located_yaml.parse(content, path))


def overridden(manifest: Manifest, values: Mapping[str, str]) -> Manifest:
    """The manifest with other values for some pins; the file stays as it is.

    Args:
        values: by key, such as `vime.commit` (short for `sources.vime.commit`) or `base.digest`.

    Raises:
        UsageError: where a key is no pin of this manifest.
        ManifestError: where the result is no manifest, at the place of the key.
    """
    document = manifest._document  # noqa: SLF001 (its own room)
    pins: dict[str, tuple[str, ...]]
    pins = {f"{name}.{key}": ("sources", name, key) for name in manifest.sources for key in PINS}
    pins |= {f"base.{key}": ("base", key) for key in ("image", "digest")}
    known = {key: path for key, path in pins.items() if path in document.places}
    text = document.text
    for key in sorted(values, key=lambda key: document.span(*known[key])[0] if key in known else 0, reverse=True):
        if key not in known:
            hint = schema.did_you_mean(key, known) or f"known are {', '.join(known)}"
            raise UsageError(Problem(f"no pin {key!r} in {manifest.title}", hint=hint))
        start, end = document.span(*known[key])
        text = text[:start] + json.dumps(values[key], ensure_ascii=False) + text[end:]
    return parse(text.encode(), manifest.path)


def unknowns(manifest: Manifest) -> tuple[Problem, ...]:
    """Where `unknown` stands: what has to be established before a real build."""
    paths: list[tuple[str, ...]] = [("base", "digest")] if manifest.base.digest == UNKNOWN else []
    paths += [("sources", name, "commit") for name, source in manifest.sources.items() if source.commit == UNKNOWN]
    return tuple(
        Problem(f"{'.'.join(path)} is unknown", manifest.where(*path), "`make bump` writes it") for path in paths
    )


def _read(document: Document) -> Manifest:
    manifest = schema.read(Manifest, document, _rules)
    manifest._document = document  # noqa: SLF001 (positions stay out of the fields, so out of every comparison)
    for name, source in manifest.sources.items():
        source._name = name  # noqa: SLF001 (the key is the name; nobody writes it twice)
    return manifest


def _rules(document: Document) -> list[Problem]:
    found = list(consistency.problems(document))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+]*", document.path.stem, re.ASCII):
        hint = "letters, digits, dots and +: it is part of the image's tag"
        message = f"file name {document.path.stem!r} is no name of an image"
        found.append(Problem(message, Location(document.path, 1), hint))
    return found
