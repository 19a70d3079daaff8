"""One side of a diff: an image, or a manifest as it stands or stood at a revision."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 (pydantic reads the annotations)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builder import drift, git, lists, made, project, reading, records
from builder import manifest as manifests
from builder.errors import BaseFactsError, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.engine import Engine
    from builder.manifest import Manifest

# Of the carried manifest, and of its keys, what pins something beside base and sources.
TABLES = ("build_tools", "constraints", "installer", "overrides", "prebuilt")
PINNED = (".version", ".address", ".sha256")
SHOWN = 80  # characters of an instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What can be compared; of what is None, `unknown` says why.

    Attributes:
        env: of an image all that it sets, of a manifest all that it declares.
        layers: bytes by instruction, where it added any; a script goes by its first line.
        checks: outcomes in the image's own build.
        flavours: of the distributions that have one, what they were built for.
        sealed: distributions that no later step may replace, and the step after which that holds.
    """

    title: str
    pins: Mapping[str, str]
    env: Mapping[str, str]
    distributions: Mapping[str, str] | None
    layers: Mapping[str, int] | None
    checks: Mapping[str, str] | None
    unknown: Mapping[str, str]
    flavours: Mapping[str, str] = field(default_factory=dict)
    sealed: Mapping[str, str] | None = None

    @property
    def is_built(self) -> bool:
        return self.layers is not None


def of(text: str, engine: Callable[[], Engine]) -> Side:
    """The side that a text names: with a colon an image; else a manifest, at the revision that follows an @.

    Raises:
        UsageError: where there is no such image, manifest or revision, or the image is none of ours.
        ManifestError: where the manifest of then is none today.
    """
    if is_image(text):
        return of_image(engine(), text)
    name, at, revision = text.partition("@")
    return _of_manifest(text, _then(name, revision) if at else project.load(name)[0])


def is_image(text: str) -> bool:
    """Whether a side is named that an engine has."""
    return ":" in text


def _then(name: str, revision: str) -> Manifest:
    commit, path = git.revision(project.ROOT, revision), f"images/{name}.yaml"
    shown = git.git(project.ROOT, "show", f"{commit}:./{path}")
    if shown.returncode:
        raise UsageError(Problem(f"there is no {path} at {revision}", hint=f"git log -- {path}"))
    folder = f"images/{manifests.SHARED}"
    listed = git.git(project.ROOT, "ls-tree", "--name-only", commit, f"./{folder}/").stdout.split()
    shared = {path: git.git(project.ROOT, "show", f"{commit}:./{path}").stdout.encode() for path in listed}
    others = {project.ROOT / path: content for path, content in shared.items()}
    return manifests.parse(shown.stdout.encode(), project.ROOT / path, others)


def _of_manifest(title: str, manifest: Manifest) -> Side:
    pins = {"base.image": manifest.base.image, "base.digest": manifest.base.digest}
    for name, source in manifest.sources.items():
        values = {key: getattr(source, key) for key in manifests.PINS["sources"]}
        pins |= {f"{name}.{key}": value for key, value in values.items() if value}
    return Side(
        title=title,
        pins={**pins, **tables(lists.content(manifest))},
        env={name: variable.value for name, variable in manifest.env.items()},
        distributions=None,
        layers=None,
        checks=None,
        unknown=dict.fromkeys(("distributions", "layers", "checks"), f"{title} is a manifest, and was not built"),
    )


def of_image(engine: Engine, tag: str) -> Side:
    """An image, by its tag or id.

    Raises:
        UsageError: where it is none of ours.
        ForgedRecordError: where what it carries is not what we write.
    """
    image, unknown = made.read(engine, tag), dict[str, str]()
    distributions: Mapping[str, str] | None = None
    flavours = dict[str, str]()
    try:
        found, _ = reading.inside(engine, image.image_id, [])
        distributions = {name: str(entry["version"]) for name, entry in found["distributions"].items()}
        local = {name: version.partition("+")[2] for name, version in distributions.items()}
        said = {name: str(entry["flavour"] or local[name]) for name, entry in found["distributions"].items()}
        flavours = {name: flavour for name, flavour in said.items() if flavour}
    except BaseFactsError as error:
        why = error.problems[0].message.partition(";")[0]
        unknown["distributions"] = why.replace(image.image_id, tag)
    if image.checks is None:
        unknown["checks"] = f"{tag} has no result of its build's checks"
    seal = image.record("seal.json", records.Seal)
    layers = dict[str, int]()
    for layer in engine.history(image.image_id):
        name = _named(layer.instruction)
        if layer.size:
            layers[name] = layers.get(name, 0) + layer.size
    return Side(
        title=tag,
        pins={**image.pinned, **tables(image.manifest or {})},
        env=image.env,
        distributions=distributions,
        layers=layers,
        checks=image.checks,
        unknown=unknown,
        flavours=flavours,
        sealed=None if seal is None else {name: entry.step for name, entry in seal.distributions.items()},
    )


def tables(content: Mapping[str, Any]) -> dict[str, str]:
    """What a carried manifest pins beside base and sources."""
    flat = drift.flat({key: content.get(key, {}) for key in TABLES})
    return {key.removesuffix(".version"): value for key, value in flat.items() if key.endswith(PINNED)}


def _named(instruction: str) -> str:
    script = drift.script_of(instruction)
    first = f"RUN {script}" if script is not None else instruction
    plain = re.sub(r"\s+", " ", (first.strip().splitlines() or ["(the root of its base)"])[0])
    return plain if len(plain) <= SHOWN else f"{plain[:SHOWN]}..."
