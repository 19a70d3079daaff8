"""What a finished image says of how it was made: manifest, pins, plans, and the checks of its build."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder import contents, lists, verify
from builder.errors import Problem, UsageError
from builder.render import LABEL
from builder.report import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.engine import Engine

UNKNOWN = "unknown"


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

    def json(self, path: str) -> Any:  # noqa: ANN401 (JSON holds anything)
        """A file under /opt/vime-image; None where it is not there or no JSON."""
        try:
            return json.loads(self.files[f"{lists.HOME}/{path}"])
        except (KeyError, ValueError):
            return None

    def label(self, name: str) -> str:
        return self.labels.get(f"{LABEL}.{name}", UNKNOWN)

    @property
    def gpu_targets(self) -> tuple[str, ...]:
        return tuple(filter(None, self.label("gpu_targets").split(";")))

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """The records of what was fetched, by source."""
        return self._folder("sources")

    @property
    def plans(self) -> dict[str, dict[str, Any]]:
        """What was judged and then installed, by step."""
        return self._folder("plans")

    def _folder(self, folder: str) -> dict[str, dict[str, Any]]:
        start = f"{lists.HOME}/{folder}/"
        names = sorted(path.removeprefix(start) for path in self.files if path.startswith(start))
        found = {name.removesuffix(".json"): self.json(f"{folder}/{name}") for name in names}
        return {name: content for name, content in found.items() if isinstance(content, dict)}

    @property
    def pinned(self) -> dict[str, str]:
        """Each pin and the value that this image has of it."""
        base = "org.opencontainers.image.base"
        found = {f"base.{key}": self.labels.get(f"{base}.{name}") or UNKNOWN for key, name in BASE.items()}
        for source, record in self.sources.items():
            found |= {f"{source}.{key}": str(record.get(key) or UNKNOWN) for key in ("repository", "commit")}
            found |= {f"{source}.tag": str(record["tag"])} if record.get("tag") else {}
        return found

    @property
    def checks(self) -> dict[str, str] | None:
        """The outcome of each check in the image's own build; None where it has no result."""
        result = self.json("verification.json")
        try:
            return {str(check["name"]): str(check["outcome"]) for check in result["checks"]}
        except (TypeError, LookupError):
            return None


BASE = {"image": "name", "digest": "digest"}  # keys of a pin, and of its label


def read(engine: Engine, tag: str) -> Made:
    """What an image says of itself.

    Raises:
        UsageError: where there is no such image, or it is none of ours.
    """
    name = verify.made_from(engine, tag)
    image_id = engine.image_id(tag) or ""
    config = engine.config(image_id)
    files = contents.read(engine, image_id, [lists.HOME])
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
