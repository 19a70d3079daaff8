"""What a finished image says of how it was made: manifest, pins, plans, and the checks of its build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from builder import contents, lists, lock, records, verify
from builder.errors import Problem, UsageError
from builder.render import LABEL
from builder.report import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.engine import Engine

UNKNOWN = "unknown"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One image of ours.

    Attributes:
        name: of its manifest.
        pins: "as manifest" or "overridden".
        files: what stands under /opt/vime-image, by path.
        history: the instructions that made it, its base's first.
    """

    tag: str
    image_id: str
    name: str
    pins: str
    labels: Mapping[str, str]
    env: Mapping[str, str]
    files: Mapping[str, bytes]
    history: tuple[str, ...]

    def record(self, path: str, shape: type[T]) -> T | None:
        """A file under /opt/vime-image that has the shape of what we write there; None where it is not there.

        Raises:
            ForgedRecordError: where it has another.
        """
        place = f"{lists.HOME}/{path}"
        return records.read(self.files[place], shape, f"{self.tag}: {place}") if place in self.files else None

    def label(self, name: str) -> str:
        return self.labels.get(f"{LABEL}.{name}", UNKNOWN)

    @property
    def gpu_targets(self) -> tuple[str, ...]:
        return tuple(filter(None, self.label("gpu_targets").split(";")))

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest that it carries, all of it."""
        carried = self.record("manifest.json", records.Manifest)
        return self.record("manifest.json", dict[str, Any]) if carried else None

    @property
    def resolution(self) -> str | None:
        """The digest of all in its manifest that decides which versions are installed; None where it carries none."""
        content = self.manifest
        try:
            return lock.digest(content) if content is not None else None
        except (AttributeError, LookupError, TypeError) as error:
            raise records.forged(f"{self.tag}: {lists.HOME}/manifest.json", f"it has no digest: {error}") from error

    @property
    def sources(self) -> dict[str, records.Source]:
        """The records of what was fetched, by source."""
        return self._folder("sources", records.Source)

    @property
    def plans(self) -> dict[str, records.Plan]:
        """What was judged and then installed, by step."""
        return self._folder("plans", records.Plan)

    def _folder(self, folder: str, shape: type[T]) -> dict[str, T]:
        start = f"{lists.HOME}/{folder}/"
        names = sorted(path.removeprefix(start) for path in self.files if path.startswith(start))
        found = {name.removesuffix(".json"): self.record(f"{folder}/{name}", shape) for name in names}
        return {name: record for name, record in found.items() if record}

    @property
    def pinned(self) -> dict[str, str]:
        """Each pin and the value that this image has of it."""
        base = "org.opencontainers.image.base"
        found = {f"base.{key}": self.labels.get(f"{base}.{name}") or UNKNOWN for key, name in BASE.items()}
        for source, record in self.sources.items():
            found |= {f"{source}.repository": record.repository, f"{source}.commit": record.commit}
            found |= {f"{source}.tag": record.tag} if record.tag else {}
        return found

    @property
    def checks(self) -> dict[str, str] | None:
        """The outcome of each check in the image's own build; None where it has no result."""
        result = self.record("verification.json", records.Verification)
        return None if result is None else {check.name: check.outcome for check in result.checks}


BASE = {"image": "name", "digest": "digest"}  # keys of a pin, and of its label


def read(engine: Engine, tag: str) -> Made:
    """What an image says of itself.

    Raises:
        UsageError: where there is no such image, or it is none of ours.
        ForgedRecordError: where its files are more than any image of ours has.
    """
    name = verify.made_from(engine, tag)
    image_id = engine.image_id(tag) or ""
    config = engine.config(image_id)
    files = contents.read(engine, image_id, [lists.HOME], tag)
    if not files:
        hint = "it was labelled by somebody else, or is no finished image"
        raise UsageError(Problem(f"{tag!r} has the label of our images, and nothing in {lists.HOME}", hint=hint))
    labels = dict(config.get("Labels") or {})
    return Made(
        tag=tag,
        image_id=image_id,
        name=name,
        pins=labels.get(f"{LABEL}.pins", UNKNOWN),
        labels=labels,
        env=dict(entry.partition("=")[::2] for entry in config.get("Env") or []),
        files=files,
        history=tuple(layer.instruction for layer in engine.history(image_id)),
    )


def counted(checks: Mapping[str, str] | None) -> str:
    """What checks came to, in one line."""
    if checks is None:
        return UNKNOWN
    outcomes = list(checks.values())
    return ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in OUTCOMES)
