"""All images at once: what there is to build, for machines that build it; and building it here."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from builder import front
from builder.errors import ImagesError, Problem, UsageError
from builder.project import ROOT, known_images, load
from builder.units import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.build import Order
    from builder.several import Outcome
    from builder.trace import Event


@click.command()
@click.option("--changed-since", metavar="REF", help="Only images whose Dockerfile has other instructions than at REF.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["bake", "buildkite", "github", "json"]),
    default="json",
    help="For docker buildx bake, a Buildkite pipeline, GitHub's strategy.matrix, or any program.",
)
def matrix(changed_since: str | None, form: str) -> None:
    """Print what there is to build: an entry for each image and GPU target.

    Example: python -m builder matrix --changed-since main --format github
    """
    from builder import matrix as listing  # noqa: PLC0415 (the docker SDK is dear to import)

    found = _orders()
    if changed_since is not None:
        found = listing.changed_since(changed_since, found, ROOT)
    click.echo(listing.FORMATS[form](listing.in_turn(found, ROOT)), nl=False)


def build_all(  # noqa: PLR0913 (each is an option)
    targets: Sequence[str],
    *,
    jobs: int,
    fail_fast: bool,
    as_json: bool,
    cache_from: str | None,
    options: Sequence[str],
) -> None:
    """Build each image for each of its targets, or of these.

    Args:
        cache_from: a registry, or a folder of it, as `push` is given it: each takes the steps of its own image there.
        options: of each `image`.

    Raises:
        ImagesError: where one is not built.
    """
    from builder import progress, several  # noqa: PLC0415

    orders = _wanted(targets)
    # Now, because a wrong place is told before a base is pulled.
    commands = {order.tag: [*_command(order, cache_from), *options] for order in orders}
    show = progress.Json if as_json else progress.Plain
    shown = {order.tag: show(sys.stdout if as_json else front.talk(), image=order.tag) for order in orders}

    def watch(order: Order, event: Event) -> None:
        shown[order.tag](event)

    refused = several.pull_bases(front.engine(), orders, watch)
    outcomes = several.run(
        orders, lambda order: commands[order.tag], jobs=jobs, fail_fast=fail_fast, watch=watch, refused=refused
    )
    click.echo(json.dumps({"images": [_entry(outcome) for outcome in outcomes]}) if as_json else _table(outcomes))
    missing = [outcome.order.tag for outcome in outcomes if outcome.state != "built"]
    if missing:
        raise ImagesError(Problem(f"{len(missing)} of {len(outcomes)} images were not built: {', '.join(missing)}"))


def _wanted(targets: Sequence[str]) -> list[Order]:
    """What is built, in its turn.

    Raises:
        UsageError: where a target is no image's, or there is nothing to build.
    """
    from builder import matrix as listing  # noqa: PLC0415

    orders = _orders()
    known = list(dict.fromkeys(order.gpu_targets[0] for order in orders))
    if not orders:
        raise UsageError(Problem("there is no image to build", hint="python -m builder matrix lists what there is"))
    for target in targets:
        if target not in known:
            raise UsageError(Problem(f"there is no image to build for {target}", hint=f"known are {', '.join(known)}"))
    return listing.in_turn([order for order in orders if not targets or order.gpu_targets[0] in targets], ROOT)


def _command(order: Order, cache_from: str | None) -> list[str]:
    """The words of a process that builds one image, as loud as this one."""
    from builder import push  # noqa: PLC0415

    name, (target,) = order.manifest.name, order.gpu_targets
    cache = ["--cache-from", push.name_in(cache_from, order.tag)] if cache_from else []
    asked = ["image", name, "--gpu-target", target, "--json", *cache]
    return [sys.executable, "-m", "builder", *front.as_loud(), *asked]


def _table(outcomes: Sequence[Outcome]) -> str:
    """A line an image: what became of it, how long that took, its tags or the first line of why it has none."""
    lines = [""]
    for outcome in outcomes:
        took = clock(outcome.seconds) if outcome.seconds else ""
        what = "  ".join(outcome.tags) or "  ".join([outcome.order.tag, *outcome.error.splitlines()[:1]])
        lines.append(f"{outcome.state:<9}  {took:>9}  {what}")
    return "\n".join(lines)


def _entry(outcome: Outcome) -> dict[str, object]:
    return {
        "image": outcome.order.tag,
        "state": outcome.state,
        "seconds": round(outcome.seconds, 3),
        "tags": outcome.tags,
        "error": outcome.error,
    }


def _orders() -> list[Order]:
    from builder import manifest as manifests  # noqa: PLC0415
    from builder import matrix as listing  # noqa: PLC0415

    images = [load(name) for name in known_images()]
    for manifest, _ in images:
        for problem in manifests.unknowns(manifest):
            front.say(f"{manifest.name} is left out: {problem.message}")
    return listing.orders(images)
