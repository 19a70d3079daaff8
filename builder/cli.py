"""The front door: the only room that prints and ends."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from builder import manifest as manifests
from builder import render as rendering
from builder.errors import BuilderError, Problem, UsageError, VerificationError
from builder.project import ROOT, assert_fresh, known_images, load, shown
from builder.report import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.build import Order
    from builder.engine import Engine
    from builder.manifest import Manifest
    from builder.progress import Live, Plain
    from builder.report import Report
    from builder.trace import Event


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Generated Dockerfiles for ROCm training images: checked, rehearsed, built, verified.

    Example: python -m builder rehearse rocm7.14
    """


@main.command()
@click.argument("images", nargs=-1)
def check(images: tuple[str, ...]) -> None:
    """Check the manifests of IMAGES (all, if none is named) and that their Dockerfiles are fresh.

    Example: python -m builder check rocm7.14
    """
    failures: list[BuilderError] = []
    for name in images or known_images():
        try:
            manifest, facts = load(name)
            assert_fresh(manifest, rendering.render(manifest, facts))
        except BuilderError as error:
            failures.append(error)
            continue
        unknown = manifests.unknowns(manifest)
        click.echo(f"{name}: ok" + (f", {len(unknown)} unknown" if unknown else ""))
        for problem in unknown:
            click.echo(f"  {problem}")
    if failures:
        raise type(failures[0])(*(problem for failure in failures for problem in failure.problems))


@main.command()
@click.argument("images", nargs=-1)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail if a file is stale.")
def render(images: tuple[str, ...], only_check: bool) -> None:  # noqa: FBT001 - click's way
    """Write the Dockerfiles of IMAGES (all, if none is named).

    Example: python -m builder render rocm7.14
    """
    for name in images or known_images():
        manifest, facts = load(name)
        text = rendering.render(manifest, facts)
        if only_check:
            assert_fresh(manifest, text)
        else:
            write_atomically(ROOT / manifest.dockerfile, text)
            click.echo(shown(ROOT / manifest.dockerfile))


def _targets(manifest: Manifest, chosen: tuple[str, ...]) -> tuple[str, ...]:
    for target in chosen:
        if target not in manifest.gpu_targets:
            known = ", ".join(manifest.gpu_targets)
            where = manifest.where("gpu_targets")
            raise UsageError(Problem(f"no GPU target {target!r} in this image", where, hint=f"known are {known}"))
    return tuple(dict.fromkeys(chosen)) or manifest.gpu_targets[:1]


_gpu_target = click.option(
    "--gpu-target",
    "targets",
    multiple=True,
    help="A target of the manifest; may be repeated. Default: its first.",
)


_plain = click.option(
    "--plain", is_flag=True, help="A line an event, also on a terminal; as with CI, NO_COLOR or TERM=dumb."
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line on standard output, the report last, no table."
)
_no_cache = click.option("--no-cache", is_flag=True, help="Run every step again; empties the compiler cache too.")


@main.command()
@click.argument("name", metavar="IMAGE")
@_gpu_target
@_plain
@_json
@click.option("--stand-in-from", "root_image", metavar="IMAGE", help="Root of the stand-in, instead of making one.")
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
    root_image: str | None,
    index: Literal["stand-in", "real"],
) -> None:
    """Build and verify IMAGE's Dockerfile on a small stand-in base.

    Example: python -m builder rehearse rocm7.14
    """
    from builder import rehearsal  # noqa: PLC0415 - the docker SDK stays out of `check` and `render`
    from builder.standin import Ingredients  # noqa: PLC0415

    manifest, facts = load(name)
    chosen = _targets(manifest, targets)
    engine = _engine()
    ingredients = Ingredients(cache=ROOT / ".cache", root_image=root_image, index=index)
    with _progress(f"{manifest.tag(chosen)}{rehearsal.SUFFIX}", plain=plain, as_json=as_json) as watch:
        order = rehearsal.order(engine, manifest, facts, chosen, ingredients, watch)
        report = _build(engine, order, watch)
    _show(report, as_json=as_json)


@main.command()
@click.argument("name", metavar="IMAGE")
@_gpu_target
@_plain
@_json
@_no_cache
def image(
    name: str,
    targets: tuple[str, ...],
    plain: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    no_cache: bool,  # noqa: FBT001
) -> None:
    """Build IMAGE on its real base, verify it, and tag it.

    Example: python -m builder image rocm7.14 --gpu-target gfx950
    """
    from builder.build import Order, refuse_unknown  # noqa: PLC0415

    manifest, facts = load(name)
    refuse_unknown(manifest)
    chosen = _targets(manifest, targets)
    engine = _engine()
    with _progress(manifest.tag(chosen), plain=plain, as_json=as_json) as watch:
        try:
            engine.pull(manifest.base.reference, watch)
        except BuilderError as error:
            instead = Problem(
                "the image cannot be built without its base",
                manifest.where("base"),
                hint=f"rehearse it on a stand-in base: make rehearse IMAGE={name}",
            )
            raise type(error)(*error.problems, instead) from error
        order = Order(
            manifest=manifest,
            facts=facts,
            gpu_targets=chosen,
            tag=manifest.tag(chosen),
            arguments={},
            no_cache=no_cache,
        )
        report = _build(engine, order, watch)
    _show(report, as_json=as_json)


@main.command()
@click.argument("tag")
@click.option("--report", "file", type=click.Path(path_type=Path), help="Write it there too: .json, .xml, .md or .txt.")
@click.option("--strict", is_flag=True, help="What could not run is a failure.")
def verify(tag: str, file: Path | None, strict: bool) -> None:  # noqa: FBT001
    """Run the checks of the image TAG in a container of it.

    Example: python -m builder verify vime:rocm7.14-gfx942 --report report.xml
    """
    from builder import verify as verifying  # noqa: PLC0415
    from builder.report import Report, assert_format  # noqa: PLC0415

    if file:
        assert_format(file)
    engine = _engine()
    image_id = engine.image_id(tag)
    if image_id is None:
        raise UsageError(Problem(f"the engine has no image {tag!r}", hint="python -m builder image IMAGE builds one"))
    name = engine.labels(image_id).get(f"{rendering.LABEL}.image")
    if name is None:
        raise UsageError(Problem(f"{tag!r} is none of our images: it has no label {rendering.LABEL}.image"))
    manifest, facts = load(name)
    verified = verifying.verify(engine, image_id, manifest, facts)
    report = Report(
        image=name,
        image_id=image_id,
        tag=tag,
        gpu_targets=verified.gpu_targets,
        pins=verified.pins,
        arguments={},
        checks=verified.checks,
    )
    if file:
        write_atomically(file, report.as_file(file))
    _show(report, strict=strict)


@main.command("engine")
def show_engine() -> None:
    """Say which container engine is used, or why there is none.

    Example: python -m builder engine
    """
    engine = _engine()
    click.echo(f"engine {engine.version} at {engine.address}")


def _engine() -> Engine:
    from builder.engine import Engine  # noqa: PLC0415

    return Engine(owner="vime-images")


def _progress(tag: str, *, plain: bool, as_json: bool) -> Plain | Live:
    """Whoever watches the build that gives `tag`."""
    from builder import build as building  # noqa: PLC0415
    from builder import progress  # noqa: PLC0415

    if as_json:
        return progress.Json(sys.stdout)
    return progress.choose(sys.stderr, os.environ, building.earlier_seconds(ROOT, tag), plain=plain)


def _build(engine: Engine, order: Order, watch: Callable[[Event], None]) -> Report:
    from builder import build as building  # noqa: PLC0415
    from builder.trace import Event  # noqa: PLC0415

    report = building.make(engine, order, watch)
    path = building.write_report(ROOT, order, report)
    watch(Event("", f"report: {shown(path)}"))
    return report


def _show(report: Report, *, as_json: bool = False, strict: bool = False) -> None:
    if as_json:
        click.echo(json.dumps(json.loads(report.json())))
    else:
        click.echo(report.table())
        if report.tag:
            click.echo(f"\n{report.tag}  {report.image_id}")
    if not report.passed:
        failed = report.count("failed")
        raise VerificationError(Problem(f"{failed} of {len(report.checks)} checks failed: no tag given"))
    if strict and not report.passed_strictly:
        untried = report.count("could not run")
        raise VerificationError(
            Problem(f"{untried} of {len(report.checks)} checks could not run, and --strict is given")
        )


def run() -> NoReturn:
    """One command; 0 is good, each kind of failure has its exit code in errors.py."""
    try:
        main(standalone_mode=False)
    except BuilderError as error:
        click.echo(error, err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        sys.exit(130)
    sys.exit(0)
