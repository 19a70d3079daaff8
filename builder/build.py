"""Build an image, verify it, and only then give it its tag."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder import buildkit, failure, render, verify
from builder import manifest as manifests
from builder.errors import BuildFailedError, ManifestError
from builder.report import Report, Step, write_atomically
from builder.trace import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be built: an image for some targets, with the build arguments that differ from its manifest's."""

    manifest: Manifest
    facts: Facts
    gpu_targets: tuple[str, ...]
    tag: str
    arguments: Mapping[str, str]
    network: buildkit.Network = "default"
    no_cache: bool = False

    @property
    def build_arguments(self) -> dict[str, str]:
        """All arguments of the build; what the manifest's default already says is left to it."""
        targets = ";".join(self.gpu_targets)
        chosen = {"GPU_TARGETS": targets} if targets != self.manifest.gpu_targets[0] else {}
        return {**chosen, **self.arguments}


def refuse_unknown(manifest: Manifest) -> None:
    """Stop where a pin is still `unknown`.

    Raises:
        ManifestError: with each of them.
    """
    missing = manifests.unknowns(manifest)
    if missing:
        raise ManifestError(*missing)


def make(engine: Engine, order: Order, watch: Callable[[Event], None]) -> Report:
    """Build and verify; the tag is given when every check that could run has passed.

    Raises:
        BuildFailedError: where a step failed.
        VerificationError: where the checks did not run to their end.
        EngineError: where the engine failed.
    """
    started = time.monotonic()
    text = render.render(order.manifest, order.facts)
    try:
        built = buildkit.build(
            engine, text, arguments=order.build_arguments, watch=watch, network=order.network, no_cache=order.no_cache
        )
    except BuildFailedError as error:
        base = order.arguments.get("BASE_IMAGE", order.manifest.base.reference)
        raise failure.explain(error, order.manifest, base) from error
    watch(Event("", "verifying: the checks run in a container of the image"))
    verified = verify.verify(engine, built.image_id, order.manifest, order.facts)
    report = Report(
        image=order.manifest.name,
        image_id=built.image_id,
        tag=None,
        gpu_targets=verified.gpu_targets,
        pins=verified.pins,
        arguments=order.build_arguments,
        checks=verified.checks,
        steps=tuple(
            Step(name=step.name, cached=step.cached, seconds=step.seconds, clipped=step.clipped) for step in built.steps
        ),
        seconds=time.monotonic() - started,
    )
    if not report.passed:
        return report
    engine.tag(built.image_id, order.tag)
    return report.with_tag(order.tag)


def report_path(root: Path, tag: str) -> Path:
    """`build/<image>-<targets>/report.json` under `root`."""
    return root / "build" / tag.partition(":")[2] / "report.json"


def earlier_seconds(root: Path, tag: str) -> dict[str, float]:
    """What each step took when it last ran for this image; empty where there was no build, or none that can be read."""
    report = report_path(root, tag)
    try:
        return {str(name): float(seconds) for name, seconds in json.loads(_timings(report).read_text("utf-8")).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        pass
    try:
        steps = json.loads(report.read_text(encoding="utf-8"))["steps"]
        return {str(step["name"]): float(step["seconds"]) for step in steps if not step["cached"]}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _timings(report: Path) -> Path:
    """Seconds by step. A report alone forgets them: in a build from the cache nothing takes time."""
    return report.with_name("timings.json")


def write_report(root: Path, order: Order, report: Report) -> Path:
    """Write the report of a build; its path."""
    path = report_path(root, order.tag)
    earlier = earlier_seconds(root, order.tag)
    seconds = {step.name: earlier.get(step.name) if step.cached else round(step.seconds, 3) for step in report.steps}
    known = {name: took for name, took in seconds.items() if took is not None}
    write_atomically(path, report.json())
    write_atomically(_timings(path), json.dumps(known, indent=1) + "\n")
    return path
