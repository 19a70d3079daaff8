"""The manifest of an image: what people write, complete and consistent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence  # noqa: TC003 (pydantic reads the annotations)
from typing import TYPE_CHECKING, Annotated, Literal

import pydantic
from pydantic_core import PydanticCustomError

from builder import consistency, entries, located_yaml, schema
from builder import lock as locks
from builder import vocabulary as v
from builder.entries import (
    UNKNOWN,
    AtLeastOne,
    Base,
    BuildTool,
    Chosen,
    Constraint,
    Link,
    Override,
    Prebuilt,
    Reasoned,
    Source,
    Variable,
)
from builder.errors import Location, ManifestError, Problem, UsageError
from builder.lock import Lock  # noqa: TC001 (pydantic reads the annotations)

if TYPE_CHECKING:
    from pathlib import Path

    from builder.document import Document, KeyPath

PINS = {"base": ("image", "digest"), "sources": ("repository", "tag", "commit"), "prebuilt": ("address", "sha256")}
NAMED = "letters, digits, dots and +: it is part of the image's tag"
SHARED = "shared"  # beside the manifests: the folder of what several have in common
Need = Literal["disk_gb", "memory_gb", "minutes"]  # of the machine that builds one target
# Options of a base's pip configuration that are refused where a sealed name could be resolved, unless listed.
PipOption = Literal["extra-index-url", "force-reinstall", "ignore-installed"]


class Manifest(schema.Written):
    """One image; mappings keep the order of the file, and what it shares with others follows its own."""

    summary: v.Text
    extends: v.SharedName | None = None
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
    prebuilt: Mapping[v.Distribution, Prebuilt] = pydantic.Field(default_factory=dict)
    sources: Annotated[Mapping[v.SourceName, Source], AtLeastOne]
    env: Mapping[v.EnvName, Variable] = pydantic.Field(default_factory=dict)
    dropped_env: Mapping[v.EnvName, Reasoned] = pydantic.Field(default_factory=dict)
    forbidden_env: Mapping[v.EnvName, Reasoned] = pydantic.Field(default_factory=dict)
    pip_check: Mapping[v.Distribution, Mapping[v.Distribution, Reasoned]] = pydantic.Field(default_factory=dict)
    workdir: v.AbsolutePath
    entrypoint: Annotated[tuple[v.Text, ...], AtLeastOne]

    _document: Document = pydantic.PrivateAttr()
    _lock: Lock | None = pydantic.PrivateAttr(default=None)

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

    @property
    def lock_file(self) -> str:
        """The file of its lock, from the project's root."""
        return f"images/{self.name}.lock"

    @property
    def lock(self) -> Lock | None:
        return self._lock

    def with_lock(self, lock: Lock | None) -> Manifest:
        """The same with another lock, or none; the files stay as they are."""
        other = self.model_copy()
        other._lock = lock  # noqa: SLF001 (its own room)
        return other

    @property
    def resolution(self) -> str:
        """The digest of all in it that decides which versions are installed."""
        return locks.digest(self.model_dump(mode="json", exclude_defaults=True))

    @property
    def stale_lock(self) -> Problem | None:
        """What to do about a lock that is of another manifest; None where there is none such."""
        if self._lock is None or self._lock.manifest == self.resolution:
            return None
        message = f"{self.lock_file} is stale: pins or requirements of {self.title} have changed since"
        return Problem(message, hint=f"python -m builder lock {self.name}")

    @property
    def locked(self) -> Mapping[str, str]:
        """The version of each distribution that its lock names; empty where it has none, or a stale one."""
        return {} if self._lock is None or self.stale_lock else self._lock.versions

    def tag(self, targets: Sequence[str]) -> str:
        """The moving tag of the image built for `targets`."""
        return f"vime:{consistency.in_tag(self.name)}-{'-'.join(targets)}"

    def installed_by(self, *recipes: str) -> list[Source]:
        """The sources with one of those recipes, in the order of the file."""
        return [source for source in self.sources.values() if source.recipe in recipes]

    @property
    def fetched(self) -> list[Source]:
        """The sources that the image itself fetches, in the order of its steps."""
        return [*self.installed_by("wheel"), *self.installed_by("editable")]

    @property
    def pins(self) -> dict[str, str]:
        """The value of each pin by its build argument."""
        return {
            "BASE_IMAGE": self.base.reference,
            **{source.commit_argument: source.commit for source in self.installed_by("wheel", "editable")},
            **{entries.wheel_argument(name): wheel.reference for name, wheel in self.prebuilt.items()},
        }

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

    @property
    def files(self) -> frozenset[Path]:
        """The files that it is made of: its own, and what it extends."""
        return frozenset(self._document.texts)

    def rewritten(self, values: Mapping[KeyPath, str]) -> dict[Path, bytes]:
        """Its files with other values for some scalars; the quotes around these, and every other byte, stay."""
        begins = {path: self._document.scalar(*path)[:1] for path in values}
        quotes = {path: begin if begin in {"'", '"'} else "" for path, begin in begins.items()}
        return _rewritten(
            self._document, {path: f"{quotes[path]}{text}{quotes[path]}" for path, text in values.items()}
        )

    def __eq__(self, other: object) -> bool:
        # Where a value stands is no part of what it says.
        return isinstance(other, Manifest) and (self.name, self.model_dump()) == (
            other.name,
            other.model_dump(),
        )

    __hash__ = None  # type: ignore[assignment]  # it holds mappings


def load(path: Path) -> Manifest:
    """The manifest at `path`, complete and consistent, with the lock beside it.

    Raises:
        ManifestError: with every fault found, each at its line and column.
    """
    return _read(located_yaml.load(path), {}).with_lock(locks.read(path.with_name(f"{path.stem}.lock")))


def parse(content: bytes, path: Path, others: Mapping[Path, bytes] | None = None) -> Manifest:
    """The manifest that `content` would be if it stood at `path`; it has no lock.

    Args:
        others: what would stand in other files that it is made of.

    Raises:
        ManifestError: with every fault found, each at its line and column.
    """
    return _read(located_yaml.parse(content, path), others or {})


def overridden(manifest: Manifest, values: Mapping[str, str]) -> Manifest:
    """The manifest with other values for some pins; the files stay as they are, and what is locked stays locked.

    Args:
        values: by key, such as `vime.commit` (short for `sources.vime.commit`) or `base.digest`.

    Raises:
        UsageError: where a key is no pin of this manifest.
        ManifestError: where the result is no manifest, at the place of the key.
    """
    document = manifest._document  # noqa: SLF001 (its own room)
    pins: dict[str, KeyPath] = {f"base.{key}": ("base", key) for key in PINS["base"]}
    for kind in ("sources", "prebuilt"):
        pins |= {f"{name}.{key}": (kind, name, key) for name in getattr(manifest, kind) for key in PINS[kind]}
    known = {key: path for key, path in pins.items() if path in document.places}
    for key in values:
        if key not in known:
            raise UsageError(Problem(f"no pin {key!r} in {manifest.title}", hint=schema.near_or_known(key, known)))
    scalars = {known[key]: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    files = _rewritten(document, scalars)
    other = parse(files[manifest.path], manifest.path, files)
    found = manifest.lock
    if found and not manifest.stale_lock:
        found = found._replace(manifest=other.resolution)
    return other.with_lock(found)


def _rewritten(document: Document, scalars: Mapping[KeyPath, str]) -> dict[Path, bytes]:
    return {path: text.encode() for path, text in document.rewritten(scalars).items()}


def unknowns(manifest: Manifest) -> tuple[Problem, ...]:
    """Where `unknown` stands: what has to be established before a real build."""
    pinned: dict[tuple[str, ...], str] = {("base", "digest"): manifest.base.digest}
    pinned |= {("sources", name, "commit"): source.commit for name, source in manifest.sources.items()}
    hints = dict.fromkeys(pinned, "`make bump` writes it")
    for name, wheel in manifest.prebuilt.items():
        pinned["prebuilt", name, "sha256"] = wheel.sha256
        hints["prebuilt", name, "sha256"] = f"curl --fail --location {wheel.address} | sha256sum"
    return tuple(
        Problem(f"{'.'.join(path)} is unknown", manifest.where(*path), hints[path])
        for path, value in pinned.items()
        if value == UNKNOWN
    )


def _read(document: Document, others: Mapping[Path, bytes]) -> Manifest:
    document = _extended(document, others)
    manifest = schema.read(Manifest, document, _rules)
    manifest._document = document  # noqa: SLF001 (positions stay out of the fields, so out of every comparison)
    for name, source in manifest.sources.items():
        source._name = name  # noqa: SLF001 (the key is the name; nobody writes it twice)
    return manifest


def _extended(document: Document, others: Mapping[Path, bytes]) -> Document:
    """The document over what it extends."""
    name = schema.value_at(document, ("extends",))
    try:
        v.shared_name(name)
    except (PydanticCustomError, TypeError):
        return document  # there is none, or the model tells what is wrong with it
    folder = document.path.parent / SHARED
    path = folder / f"{name}.yaml"
    if path not in others and not path.is_file():
        known = [found.stem for found in folder.glob("*.yaml")]
        hint = schema.near_or_known(name, sorted(known))
        raise ManifestError(Problem(f"no file {str(path)!r}", document.where("extends"), hint))
    shared = located_yaml.parse(others[path], path) if path in others else located_yaml.load(path)
    if ("extends",) in shared.places:
        raise ManifestError(Problem("what is extended extends nothing", shared.where("extends"), "delete it"))
    return document.over(shared)


def _rules(document: Document) -> list[Problem]:
    found = list(consistency.problems(document))
    if not is_name(document.path.stem):
        message = f"file name {document.path.stem!r} is no name of an image"
        found.append(Problem(message, Location(document.path, 1), NAMED))
    return found


def is_name(text: str) -> bool:
    """Whether an image can be called that."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+]*", text, re.ASCII) is not None
