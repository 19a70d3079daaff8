"""Build an image, verify it, and only then give it its tag."""

from __future__ import annotations

import functools
import hashlib
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from builder import buildkit, dockerfile, proof, registry, render, steps, verify
from builder import manifest as manifests
from builder.errors import BuilderError, BuildFailedError, EngineError, ManifestError, Problem
from builder.files import write_atomically
from builder.project import kept
from builder.report import Report, ended_by, steps_of
from builder.trace import Event, Trace
from builder.units import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest


DEVELOPMENT = "-dev"  # of the tag of an image whose pins are not the manifest's


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be built: an image for some targets.

    Attributes:
        arguments: build arguments that differ from the manifest's.
        overrides: keys of the manifest that were given other values, and which; the manifest has them.
        anew: the mark of each step that was asked to run anew.
        time_limit_s: of the build, without its verification.
        cache_from: an image in a registry whose steps are taken as done.
        strict: whether a check that could not run keeps the tag back.
        epoch: the time that the image and its history shall bear, in seconds since 1970; without it, that of the build.
    """

    manifest: Manifest
    facts: Facts
    gpu_targets: tuple[str, ...]
    tag: str
    arguments: Mapping[str, str]
    network: buildkit.Network = "default"
    no_cache: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)
    anew: Mapping[str, str] = field(default_factory=dict)
    cache_from: str | None = None
    time_limit_s: float | None = None
    strict: bool = False
    epoch: int | None = None

    @functools.cached_property
    def dockerfile(self) -> str:
        return steps.run_anew(render.render(self.manifest, self.facts), self.anew)

    @property
    def fixed_tag(self) -> str | None:
        """The tag that stays with what goes into the image; None where that is not what the manifest says."""
        if self.pins == "overridden":
            return None
        instructions = [instruction.inputs for instruction in dockerfile.parse(self.dockerfile)]
        inputs = json.dumps([instructions, self.build_arguments], sort_keys=True)
        return f"{self.tag}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"

    @property
    def pins(self) -> str:
        """Whose they are, as the image will say itself."""
        return "overridden" if self.arguments or self.overrides else "as manifest"

    @property
    def labels(self) -> dict[str, str]:
        """Labels that the file itself cannot know."""
        return {f"{render.LABEL}.pins": "overridden"} if self.overrides else {}

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


def have_base(engine: Engine, manifest: Manifest, watch: Callable[[Event], None]) -> None:
    """Pull the base, unless the engine has it.

    Raises:
        BaseImageError: where it cannot be had; with what can be done without it.
    """
    try:
        registry.pull(engine, manifest.base.reference, watch)
    except EngineError as error:
        instead = Problem(
            "the image cannot be built without its base",
            manifest.where("base"),
            hint=f"rehearse it on a stand-in base: make rehearse IMAGE={manifest.name}",
        )
        raise type(error)(*error.problems, instead) from error


def make(
    engine: Engine, order: Order, watch: Callable[[Event], None], keep: Callable[[Report], None] = lambda _: None
) -> Report:
    """Build and verify; the tags are given when every check that could run has passed.

    Args:
        keep: gets the report, also where the build or its verification ended in an error.

    Raises:
        BuildFailedError: where a step failed.
        VerificationError: where the checks did not run to their end.
        EngineError: where the engine failed.
    """
    started, traced = time.monotonic(), Trace()
    try:
        built = _built(engine, order, order.dockerfile, order.labels, watch, traced=traced)
    except BuilderError as error:
        ended = ended_by(error, "the image is built", "build", time.monotonic() - started)
        none = verify.Verified(gpu_targets=order.gpu_targets, pins=order.pins, checks=(ended,))
        keep(_report(order, "", none, traced, started))
        raise
    watch(Event("", "verifying: the checks run in a container of the image"))
    verified = verify.verify(engine, built.image_id, order.manifest, order.facts)
    found = _report(order, built.image_id, verified, traced, started)
    if found.passed_strictly if order.strict else found.passed:
        engine.tag(built.image_id, order.tag)
        found = found.with_tags(order.tag, _fixed(engine, built.image_id, order.fixed_tag, watch))
    keep(found)
    if verified.error:
        raise verified.error
    return found


def _report(order: Order, image_id: str, verified: verify.Verified, traced: Trace, started: float) -> Report:
    """What has come of an order so far; it has no tag."""
    return Report(
        image=order.manifest.name,
        image_id=image_id,
        tag=None,
        gpu_targets=verified.gpu_targets,
        pins=verified.pins,
        arguments={**order.build_arguments, **order.overrides},
        checks=verified.checks,
        steps=steps_of(traced.steps),
        seconds=time.monotonic() - started,
    )


def _fixed(engine: Engine, image_id: str, tag: str | None, watch: Callable[[Event], None]) -> str | None:
    """Give the fixed tag, unless it is another image's already: whoever named that one by it means that one."""
    if tag is None:
        return None
    found = engine.image_id(tag)
    if found not in {None, image_id}:
        watch(Event("", f"{tag} stays with {found}, made of the same inputs; to move it: docker rmi {tag}"))
        return None
    engine.tag(image_id, tag)
    return tag


def make_before(engine: Engine, order: Order, step: str, watch: Callable[[Event], None]) -> str:
    """The id of the image as it is when the step begins.

    Raises:
        UsageError: where there is no such step.
        BuildFailedError: where an earlier step failed.
        EngineError: where the engine failed.
    """
    text = steps.before(order.dockerfile, step)
    return _built(engine, order, text, {f"{render.LABEL}.debug": step}, watch).image_id


def _built(  # noqa: PLR0913 (each is one fact of the build)
    engine: Engine,
    order: Order,
    text: str,
    labels: Mapping[str, str],
    watch: Callable[[Event], None],
    *,
    traced: Trace | None = None,
) -> buildkit.Built:
    try:
        return buildkit.build(
            engine,
            text,
            arguments=order.build_arguments,
            epoch=order.epoch,
            watch=watch,
            network=order.network,
            no_cache=order.no_cache,
            labels=labels,
            cache_from=order.cache_from,
            time_limit_s=order.time_limit_s,
            trace=traced,
        )
    except BuildFailedError as error:
        from builder import failure  # noqa: PLC0415 (dear, and most builds go well)

        base = order.arguments.get("BASE_IMAGE", order.manifest.base.reference)
        raise failure.explain(error, order.manifest, base) from error


def anew(root: Path, tag: str) -> dict[str, str]:
    """The marks of the steps that were asked to run anew; a build without them would find what was there before."""
    try:
        marks = json.loads(_anew(root, tag).read_text("utf-8"))
        return {str(step): str(mark) for step, mark in marks.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def mark_anew(root: Path, order: Order, step: str) -> None:
    """Have a step and all that follow it run anew, in the next build of the order's tag.

    Raises:
        UsageError: where there is no such step.
    """
    steps.assert_there(order.dockerfile, step)
    marks = {**anew(root, order.tag), step: secrets.token_hex(8)}
    write_atomically(_anew(root, order.tag), json.dumps(marks, indent=1) + "\n")


def forget_anew(root: Path, tag: str) -> None:
    """Let the next build find what every step has left last; right after all of them ran anew."""
    _anew(root, tag).unlink(missing_ok=True)


def remarks(root: Path, order: Order) -> Iterator[str]:
    """What whoever watches should know before this build begins."""
    earlier = sum(earlier_seconds(root, order.tag).values())
    if order.no_cache:
        took = f"; they took {clock(earlier)} when they last ran" if earlier else ""
        yield f"--no-cache runs every step anew and empties the compiler's cache and pip's{took}"
        yield "to keep them: --refresh STEP"
    marked = [step for step in steps.names(order.dockerfile) if step in order.anew]
    if marked:
        path = _anew(root, order.tag).relative_to(root)
        yield f"{', '.join(marked)} and what follows: since the last --refresh, not cached before it ({path})"


def _anew(root: Path, tag: str) -> Path:
    return kept(root, tag) / "anew.json"


def report_path(root: Path, tag: str) -> Path:
    """`build/<image>-<targets>/report.json` under `root`."""
    return kept(root, tag) / "report.json"


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
    took = {step.name: round(step.seconds, 3) for step in report.steps if not (step.cached or step.failed)}
    names = {step.name for step in report.steps} if report.image_id else set(earlier)  # a failed build has not all
    known = {name: seconds for name, seconds in earlier.items() if name in names} | took
    write_atomically(path, report.json())
    if report.image_id:
        proof.keep(root, report)
    write_atomically(_timings(path), json.dumps(known, indent=1) + "\n")
    return path
