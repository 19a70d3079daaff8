"""The commands that build: a rehearsal, an image, an image as far as a step."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from builder import front, matrix_commands, steps
from builder.errors import StaleError
from builder.project import ROOT, alone, chosen_targets, load, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from builder.build import Order
    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest
    from builder.progress import Live, Plain
    from builder.report import Report
    from builder.trace import Event

    Watch = Callable[[Event], None]

# The docker SDK and rich are imported where they are used: `check`, `render` and every help do without.
Command = TypeVar("Command", bound="Callable[..., Any]")


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_watched = _options(
    click.option(
        "--gpu-target",
        "targets",
        multiple=True,
        shell_complete=front.targets,
        help="A target of the manifest; may be repeated. Default: its first.",
    ),
    click.option(
        "--plain", is_flag=True, help="A line an event, also on a terminal; as with CI, NO_COLOR or TERM=dumb."
    ),
)
_refresh = click.option(
    "--refresh", metavar="STEP", help="Run anew from this step on; the compiler's cache and pip's stay."
)
_root_image = click.option(
    "--stand-in-from",
    "root_image",
    metavar="IMAGE",
    callback=front.reference,
    help="Root of the stand-in, instead of making one.",
)


@click.command()
@click.argument("name", metavar="IMAGE", shell_complete=front.images)
@_watched
@front.as_json
@front.strict
@_refresh
@_root_image
@click.option(
    "--index",
    type=click.Choice(["stand-in", "real"]),
    default="stand-in",
    help="Resolve requirements from stand-in wheels, or from this machine's package index.",
)
def rehearse(  # noqa: PLR0913, PLR0917 (click's way)
    name: str,
    targets: tuple[str, ...],
    plain: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    strict: bool,  # noqa: FBT001
    refresh: str | None,
    root_image: str | None,
    index: Literal["stand-in", "real"],
) -> None:
    """Build and verify IMAGE's Dockerfile on a small stand-in base.

    Example: python -m builder rehearse rocm7.14
    """
    from builder import rehearsal, render  # noqa: PLC0415
    from builder.standin import Ingredients  # noqa: PLC0415

    manifest, facts = _loaded(name)
    chosen, epoch = chosen_targets(manifest, targets), front.epoch()
    if refresh:
        steps.assert_there(render.render(manifest, facts), refresh)
    engine = front.engine()
    ingredients = Ingredients(cache=ROOT / ".cache", root_image=root_image, index=index)
    tag = f"{manifest.tag(chosen)}{rehearsal.SUFFIX}"
    with alone(tag), _progress(tag, plain=plain, as_json=as_json) as watch:
        order = rehearsal.order(engine, manifest, facts, chosen, ingredients, watch)
        report = reported(engine, replace(order, strict=strict, epoch=epoch), watch, refresh)
    front.show(report, as_json=as_json, strict=strict)


@click.command()
@click.argument("name", metavar="[IMAGE]", required=False, shell_complete=front.images)
@_watched
@front.as_json
@front.strict
@_refresh
@click.option("--all", "every", is_flag=True, help="Every image for each of its targets, no compile beside its like.")
@click.option("--jobs", type=click.IntRange(min=1), help="With --all, how many are built at a time. Default: 1.")
@click.option("--fail-fast", is_flag=True, help="With --all, let one failure stop the others.")
@click.option("--no-cache", is_flag=True, help="Run every step anew; empties the compiler's cache and pip's.")
@click.option(
    "--cache-from",
    metavar="REF",
    callback=front.reference,
    help="Take steps from this image of a registry; with --all, a registry.",
)
@click.option("--time-limit", type=click.IntRange(min=1), metavar="MINUTES", help="Of the build; it stops there.")
@click.option(
    "--set", "settings", multiple=True, metavar="PIN=VALUE", help="Another value for a pin; the tag then ends in -dev."
)
def image(  # noqa: PLR0913, PLR0917 (click's way)
    name: str | None,
    targets: tuple[str, ...],
    plain: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    strict: bool,  # noqa: FBT001
    refresh: str | None,
    every: bool,  # noqa: FBT001
    jobs: int | None,
    fail_fast: bool,  # noqa: FBT001
    no_cache: bool,  # noqa: FBT001
    cache_from: str | None,
    time_limit: int | None,
    settings: tuple[str, ...],
) -> None:
    """Build IMAGE on its real base, verify it, and tag it; or, with --all, every image, on one engine.

    Example: python -m builder image rocm7.14 --gpu-target gfx950
    """
    if no_cache and (refresh or cache_from):
        raise click.UsageError("either --no-cache, which runs every step anew, or --refresh or --cache-from")
    if every == bool(name):
        raise click.UsageError("an image is wanted, or --all")
    if name and (jobs or fail_fast):
        raise click.UsageError("--jobs and --fail-fast are for --all")
    if not name and (refresh or no_cache or settings):
        raise click.UsageError("--refresh, --no-cache and --set are for one image, not for --all")
    if not name:
        options = [*(["--time-limit", str(time_limit)] if time_limit else []), *(["--strict"] if strict else [])]
        matrix_commands.build_all(
            targets, jobs=jobs or 1, fail_fast=fail_fast, as_json=as_json, cache_from=cache_from, options=options
        )
        return
    limit = time_limit * 60 if time_limit else None
    order = _ordered(name, targets, settings)
    order = replace(order, no_cache=no_cache, cache_from=cache_from, strict=strict, time_limit_s=limit)
    report = _built(order, refresh, plain=plain, as_json=as_json)
    front.show(report, as_json=as_json, strict=strict)


def _ordered(name: str, targets: tuple[str, ...], settings: tuple[str, ...]) -> Order:
    """An image on its real base, as its manifest and its settings have it."""
    from builder import build as building  # noqa: PLC0415

    overrides = front.pairs(settings, "--set", "--set vime.commit=COMMIT")
    manifest, facts = _loaded(name, overrides)
    building.refuse_unknown(manifest)
    chosen = chosen_targets(manifest, targets)
    return building.Order(
        manifest=manifest,
        facts=facts,
        gpu_targets=chosen,
        tag=manifest.tag(chosen) + (building.DEVELOPMENT if overrides else ""),
        arguments={},
        overrides=overrides,
        epoch=front.epoch(),
    )


def _built(order: Order, refresh: str | None, *, plain: bool, as_json: bool) -> Report:
    from builder import build as building  # noqa: PLC0415
    from builder import reading  # noqa: PLC0415

    if refresh:
        steps.assert_there(order.dockerfile, refresh)
    engine = front.engine()
    with alone(order.tag), _progress(order.tag, plain=plain, as_json=as_json) as watch:
        building.have_base(engine, order.manifest, watch)
        reading.expect(engine, order.manifest, order.facts, watch)
        return reported(engine, order, watch, refresh)


@click.command()
@click.argument("name", metavar="IMAGE", shell_complete=front.images)
@click.argument("step")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@_watched
@click.option("--rehearsal", "rehearsed", is_flag=True, help="On the stand-in base.")
@_root_image
def debug(  # noqa: PLR0913, PLR0917 (click's way)
    name: str,
    step: str,
    command: tuple[str, ...],
    targets: tuple[str, ...],
    plain: bool,  # noqa: FBT001
    rehearsed: bool,  # noqa: FBT001
    root_image: str | None,
) -> None:
    """Open a shell in IMAGE as it is when STEP begins, with the step's script at hand; or run COMMAND there.

    Example: python -m builder debug rocm7.14 BUILD_VLLM --rehearsal
    """
    from builder import build as building  # noqa: PLC0415
    from builder import debugging, rehearsal, terminal  # noqa: PLC0415
    from builder.standin import Ingredients  # noqa: PLC0415

    manifest, facts = _loaded(name)
    chosen = chosen_targets(manifest, targets)
    tag = manifest.tag(chosen)
    order = building.Order(manifest=manifest, facts=facts, gpu_targets=chosen, tag=tag, arguments={})
    steps.assert_there(order.dockerfile, step)
    if not rehearsed:
        building.refuse_unknown(manifest)
    engine = front.engine()
    with _progress(tag, plain=plain, as_json=False) as watch:
        if rehearsed:
            ingredients = Ingredients(cache=ROOT / ".cache", root_image=root_image)
            order = rehearsal.order(engine, manifest, facts, chosen, ingredients, watch)
        else:
            building.have_base(engine, manifest, watch)
        scene = debugging.before(engine, order, step, command, watch)
    front.say(scene.greeting)
    try:
        status = terminal.run(engine, scene.session, scene.files)
    finally:
        engine.remove_image(scene.session.image)
    sys.exit(status)


def _loaded(name: str, overrides: Mapping[str, str] | None = None) -> tuple[Manifest, Facts]:
    """An image that can be rendered: a stale lock is told before a base is pulled or made.

    Raises:
        StaleError: with the command to run.
    """
    manifest, facts = load(name, overrides)
    if stale := manifest.stale_lock:
        raise StaleError(stale)
    return manifest, facts


def _progress(tag: str, *, plain: bool, as_json: bool) -> Plain | Live:
    """Whoever watches the build that gives `tag`."""
    from builder import build as building  # noqa: PLC0415
    from builder import progress  # noqa: PLC0415

    if as_json:
        return progress.Json(sys.stdout)
    return front.watching(building.earlier_seconds(ROOT, tag), plain=plain)


def reported(engine: Engine, order: Order, watch: Watch, refresh: str | None) -> Report:
    """What a build came to; its report is written whatever that was."""
    from builder import build as building  # noqa: PLC0415
    from builder import page  # noqa: PLC0415
    from builder.trace import Event  # noqa: PLC0415

    if refresh:
        building.mark_anew(ROOT, order, refresh)
    order = replace(order, anew={} if order.no_cache else building.anew(ROOT, order.tag))
    for remark in building.remarks(ROOT, order):
        watch(Event("", remark))
    logs = page.Logs(watch)

    def keep(report: Report) -> None:
        building.write_report(ROOT, order, report)
        path = page.write(ROOT, order.tag, report, page.contents_of(engine, report), logs.lines)
        watch(Event("", f"report: {shown(path)} (and .json)"))

    report = building.make(engine, order, logs, keep)
    if order.no_cache:
        building.forget_anew(ROOT, order.tag)
    return report
