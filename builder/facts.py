"""Facts of a base image: what was published about it, or read from it."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (pydantic reads the annotations)
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import pydantic

from builder import located_yaml, schema
from builder import vocabulary as v
from builder.distributions import canonical, covers, same_release
from builder.errors import Location, ManifestError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.document import Document
    from builder.manifest import Manifest

FOLDER = "images/bases"
USUAL_ROCM = "/opt/rocm"


class Python(schema.Written):
    """The interpreter that the image's programs run with."""

    version: v.ExactVersion
    executable: v.AbsolutePath
    site_packages: v.AbsolutePath


class Facts(schema.Written):
    """One base image by its digest; None is what nobody has established.

    Attributes:
        size_gb: what it takes on disk, unpacked.
        env_unknown: variables that it sets to values that are not known.
        rocm: the version of ROCm, where no distribution tells it.
        rocm_root: the folder that has ROCm's compiler and headers.
        device_code: the GPU targets that its torch has code for.
        tools: names on PATH; all of them, or None.
        pip_check: what `pip check` says of it.
        requirements: by distribution, what it asks for on this base, without extras.
        flavours: by distribution, what it was built for, as far as its own fields tell.
    """

    image: v.ImageName
    digest: v.Digest
    sources: Mapping[str, v.Text]
    size_gb: v.Gigabytes | None = None
    system: v.Text
    python: Python
    env: Mapping[v.EnvName, v.EnvValue] = pydantic.Field(default_factory=dict)
    env_unknown: tuple[v.EnvName, ...] = ()
    entrypoint: tuple[v.EnvValue, ...] | None = None
    rocm: v.ExactVersion | None = None
    rocm_root: v.AbsolutePath | None = None
    device_code: tuple[v.GpuTarget, ...] | None = None
    tools: tuple[v.ToolName, ...] | None = None
    pip_check: tuple[v.Line, ...] | None = None
    distributions: Mapping[v.Distribution, v.ExactVersion]
    flavours: Mapping[v.Distribution, Literal["rocm", "cuda", "cpu"]] | None = None
    requirements: Mapping[v.Distribution, tuple[v.RequirementLine, ...]] | None = None

    _document: Document = pydantic.PrivateAttr()

    @property
    def path(self) -> Path:
        """The file that they were read from."""
        return self._document.path

    @property
    def variables(self) -> frozenset[str]:
        """The names of all variables that the base sets, known value or not."""
        return frozenset(self.env) | frozenset(self.env_unknown)

    def where(self, *path: str | int) -> Location:
        """The place of a key in the file; of what is not written there, its parent's."""
        return self._document.where(*path)

    def matching(self, pattern: str) -> list[str]:
        """The distributions that a name, or a pattern with stars, stands for."""
        return [name for name in self.distributions if covers(pattern, name)]

    def __eq__(self, other: object) -> bool:
        # Where a fact stands is no part of what it says.
        return isinstance(other, Facts) and self.model_dump() == other.model_dump()

    __hash__ = None  # type: ignore[assignment]  # it holds mappings


def load(path: Path) -> Facts:
    """The facts at `path`.

    Raises:
        ManifestError: with every fault found, each at its line and column.
    """
    return _read(located_yaml.content(path), path)


@lru_cache(maxsize=8)  # images share bases
def _read(content: bytes, path: Path) -> Facts:
    document = located_yaml.parse(content, path)
    facts = schema.read(Facts, document, _rules)
    facts._document = document  # noqa: SLF001 (positions stay out of the fields, so out of every comparison)
    return facts


def of(manifest: Manifest, root: Path) -> Facts:
    """The facts of the manifest's base, from the project at `root`.

    Raises:
        ManifestError: where there are none, or they contradict the manifest.
    """
    folder = root / FOLDER
    path = folder / f"{manifest.base.facts}.yaml"
    if not path.is_file():
        known = [found.stem for found in folder.glob("*.yaml")]
        hint = schema.near_or_known(manifest.base.facts, sorted(known))
        raise ManifestError(Problem(f"no file {str(path)!r}", manifest.where("base", "facts"), hint))
    facts = load(path)
    problems = [
        *_contradictions(manifest, facts),
        *shipped_otherwise(manifest, facts),
        *_other_python(manifest, facts),
        *_not_there(manifest, facts),
        *_set_already(manifest, facts),
        *_without_code(manifest, facts),
        *_foreign_rocm(manifest, facts),
    ]
    if problems:
        raise ManifestError(*problems)
    return facts


def _rules(document: Document) -> Iterator[Problem]:
    known = schema.value_at(document, ("env",))
    unknown = schema.value_at(document, ("env_unknown",))
    if isinstance(known, dict) and isinstance(unknown, tuple):
        for index, name in enumerate(unknown):
            if isinstance(name, str) and name in known:
                yield Problem(f"{name!r} has a value in env", document.where("env_unknown", index), "keep one")


def _contradictions(manifest: Manifest, facts: Facts) -> Iterator[Problem]:
    for key in ("image", "digest"):
        written, known = getattr(manifest.base, key), getattr(facts, key)
        if written != known and v.UNKNOWN not in {written, known}:
            message = f"base.{key} is {written}, the facts are of {known}"
            hint = f"change it here, or write the facts of this base: {facts.where(key)}"
            yield Problem(message, manifest.where("base", key), hint)


def shipped_otherwise(manifest: Manifest, facts: Facts) -> Iterator[Problem]:
    """Where the base has another version of a source than its tag says."""
    versions = {canonical(name): version for name, version in facts.distributions.items()}
    for source in manifest.installed_by("shipped"):
        found, tag = versions.get(canonical(source.distribution)), source.tag
        if found and source.public_version and not same_release(found, source.public_version):
            where = manifest.where("sources", source.name, "tag")
            hint = f"pin the tag of what the base ships, or a base that ships {tag}: base.image"
            yield Problem(f"the base has {source.distribution} {found}, the tag is {tag}", where, hint)


def _other_python(manifest: Manifest, facts: Facts) -> Iterator[Problem]:
    """Where a prebuilt wheel is one for another Python than the base's."""
    ours = "cp" + "".join(facts.python.version.split(".")[:2])
    for name, wheel in manifest.prebuilt.items():
        pythons = wheel.pythons
        if not pythons & {ours, "py3"}:
            where = manifest.where("prebuilt", name, "address")
            message = f"{wheel.file} is for {', '.join(sorted(pythons))}, the base has Python {facts.python.version}"
            yield Problem(message, where, f"give the address of a wheel for {ours}")


def _not_there(manifest: Manifest, facts: Facts) -> Iterator[Problem]:
    for name, sealed in manifest.sealed.items():
        if not sealed.optional and not facts.matching(name):
            message = f"the base has no distribution {name!r}"
            yield Problem(message, manifest.where("sealed", name), _near(name, facts))


def _set_already(manifest: Manifest, facts: Facts) -> Iterator[Problem]:
    for name in manifest.forbidden_env:
        if name in facts.env:
            message = f"the base sets {name!r} to {facts.env[name]!r}"
            hint = "a Dockerfile cannot unset it: move it to dropped_env"
            yield Problem(message, manifest.where("forbidden_env", name), hint)


def _without_code(manifest: Manifest, facts: Facts) -> Iterator[Problem]:
    for index, target in enumerate(manifest.gpu_targets if facts.device_code else ()):
        if target not in (facts.device_code or ()):
            message = f"the base's torch has no code for {target}"
            hint = f"it has code for {', '.join(facts.device_code or ())}: {facts.where('device_code')}"
            yield Problem(message, manifest.where("gpu_targets", index), hint)


def _foreign_rocm(manifest: Manifest, facts: Facts) -> Iterator[Problem]:
    """Paths of a ROCm that this base does not have: most bases keep it in one folder, some install it with pip."""
    root = facts.rocm_root
    if root is None or f"{root}/".startswith(f"{USUAL_ROCM}/"):
        return
    places = [
        *((("env", name, "value"), variable.value) for name, variable in manifest.env.items()),
        *((("links", path), path) for path in manifest.links),
        *((("links", path, "to"), link.to) for path, link in manifest.links.items()),
        *((("executables", path), path) for path in manifest.executables),
    ]
    for path, text in places:
        if USUAL_ROCM in text:
            yield Problem(f"this base has no {USUAL_ROCM}", manifest.where(*path), f"its ROCm is in {root}")


def _near(name: str, facts: Facts) -> str:
    """What may be meant: a distribution can be called otherwise than its module (aiter: amd-aiter)."""
    import difflib  # noqa: PLC0415 (most manifests name what is there)

    bare = canonical(name.replace("*", "")).strip("-")
    words = set(bare.split("-"))
    known = {canonical(found): found for found in facts.distributions}
    near = [found for plain, found in known.items() if bare and (bare in plain or plain in words)]
    near += difflib.get_close_matches(bare, set(facts.distributions) - set(near), n=3)
    if near:
        return f"did you mean {' or '.join(map(repr, near[:3]))}? modules and distributions differ in name"
    place = facts.where("distributions")
    return f"write `optional: true` where the base may lack it, or add it to the facts: {place}"
