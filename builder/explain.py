"""Explain an image: what made it, what it has passed, and whether this checkout would make the same."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from builder import drift, project, proof
from builder.errors import BuilderError
from builder.made import UNKNOWN, counted
from builder.told import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from builder.made import Made


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What there is to say of an image.

    Attributes:
        plans: by step, what was installed.
        in_build: outcomes of the checks that the image's own build ran; None where it has no result.
        verified: what the last verification by this checkout came to, in one line; None where there is none.
        checkout: "identical", "drifted", or why that is unknown.
    """

    tag: str
    image_id: str
    manifest: str
    manifest_digest: str
    templates_digest: str
    gpu_targets: tuple[str, ...]
    pins: str
    pinned: Mapping[str, str]
    overridden: Mapping[str, str]
    plans: Mapping[str, tuple[str, ...]]
    in_build: Mapping[str, str] | None
    verified: str | None
    checkout: str
    drift: tuple[str, ...]

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def text(self) -> str:
        return plain("\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        yield f"{self.tag}  {self.image_id}"
        yield f"made from {self.manifest} for {', '.join(self.gpu_targets) or UNKNOWN} (pins: {self.pins})"
        yield f"manifest {self.manifest_digest}"
        yield f"templates {self.templates_digest}"
        yield "\npins"
        for key, value in self.pinned.items():
            instead = f"  (its manifest has {self.overridden[key]})" if key in self.overridden else ""
            yield f"  {key}: {value}{instead}"
        yield "\nplans, judged and installed"
        yield from (f"  {step}: {len(plan)} distributions" for step, plan in self.plans.items())
        if not self.plans:
            yield "  none"
        yield "\nchecks"
        yield f"  in its build: {counted(self.in_build)}"
        for name, outcome in (self.in_build or {}).items():
            if outcome != "passed":
                yield f"    {outcome}: {name}"
        yield f"  by this checkout: {self.verified or f'none; python -m builder verify {self.tag}'}"
        yield f"\nwhat this checkout renders to: {self.checkout}"
        yield from (f"  {line}" for line in self.drift)


def explain(made: Made, root: Path) -> Explanation:
    """What made an image, held against the checkout at `root`.

    Raises:
        ForgedRecordError: where what it carries is not what we write.
    """
    checkout, drifted = _against_checkout(made)
    report = proof.of(root, made.image_id)
    written = drift.flat(made.manifest or {})
    own = {key: written.get(key if key.startswith("base.") else f"sources.{key}", UNKNOWN) for key in made.pinned}
    return Explanation(
        tag=made.tag,
        image_id=made.image_id,
        manifest=f"images/{made.name}.yaml",
        manifest_digest=made.label("manifest"),
        templates_digest=made.label("templates"),
        gpu_targets=made.gpu_targets,
        pins=made.pins,
        pinned=made.pinned,
        overridden={key: value for key, value in own.items() if value != made.pinned[key]},
        plans={
            step: tuple(f"{entry.name} {entry.version}" for entry in plan.distributions)
            for step, plan in made.plans.items()
        },
        in_build=made.checks,
        verified=report.headline if report else None,
        checkout=checkout,
        drift=drifted,
    )


def _against_checkout(made: Made) -> tuple[str, tuple[str, ...]]:
    try:
        found = tuple(drift.of(made, *project.load(made.name)))
    except BuilderError as error:  # its manifest is gone, or does not render today
        return f"{UNKNOWN}: {error.problems[0].message}", ()
    return ("drifted" if found else "identical"), found
