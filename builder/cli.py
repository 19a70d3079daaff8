"""The front door: the only room that prints and ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from builder import facts as bases
from builder import manifest as manifests
from builder import render as rendering
from builder import schema
from builder.errors import BuilderError, Problem, StaleError, UsageError, VerificationError
from builder.report import write_atomically

if TYPE_CHECKING:
    from builder.build import Order
    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest
    from builder.report import Report
    from builder.trace import Event

ROOT = Path(__file__).parent.parent


def known_images() -> list[str]:
    return sorted(path.stem for path in (ROOT / "images").glob("*.yaml"))


def load(name: str) -> tuple[Manifest, Facts]:
    """The manifest of an image by its name, with the facts of its base."""
    path = ROOT / "images" / f"{name}.yaml"
    if not path.is_file():
        hint = schema.did_you_mean(name, known_images()) or f"known are {', '.join(known_images()) or 'none'}"
        raise UsageError(Problem(f"no image {name!r}", hint=hint))
    manifest = manifests.load(_shown(path))
    return manifest, bases.of(manifest, _shown(ROOT))


def _shown(path: Path) -> Path:
    """A path as it is shortest to read from where the user stands."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


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
            _assert_fresh(manifest, rendering.render(manifest, facts))
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
            _assert_fresh(manifest, text)
        else:
            write_atomically(ROOT / manifest.dockerfile, text)
            click.echo(_shown(ROOT / manifest.dockerfile))


def _assert_fresh(manifest: Manifest, text: str) -> None:
    path = ROOT / manifest.dockerfile
    found = path.read_bytes() if path.is_file() else b""
    if found != text.encode():
        state = "stale" if found else "missing"
        hint = f"python -m builder render {manifest.name}"
        raise StaleError(Problem(f"{manifest.dockerfile} is {state}", hint=hint))


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


@main.command()
@click.argument("name", metavar="IMAGE")
@_gpu_target
@click.option("--stand-in-from", "root_image", metavar="IMAGE", help="Root of the stand-in, instead of making one.")
@click.option(
    "--index",
    type=click.Choice(["stand-in", "real"]),
    default="stand-in",
    help="Resolve requirements from stand-in wheels, or from this machine's package index.",
)
def rehearse(name: str, targets: tuple[str, ...], root_image: str | None, index: Literal["stand-in", "real"]) -> None:
    """Build and verify IMAGE's Dockerfile on a small stand-in base.

    Example: python -m builder rehearse rocm7.14
    """
    from builder import rehearsal  # noqa: PLC0415 - the docker SDK stays out of `check` and `render`
    from builder.standin import Ingredients  # noqa: PLC0415

    manifest, facts = load(name)
    chosen = _targets(manifest, targets)
    engine = _engine()
    ingredients = Ingredients(cache=ROOT / ".cache", root_image=root_image, index=index)
    _build(engine, rehearsal.order(engine, manifest, facts, chosen, ingredients, _watch))


@main.command()
@click.argument("name", metavar="IMAGE")
@_gpu_target
def image(name: str, targets: tuple[str, ...]) -> None:
    """Build IMAGE on its real base, verify it, and tag it.

    Example: python -m builder image rocm7.14 --gpu-target gfx950
    """
    from builder.build import Order, refuse_unknown  # noqa: PLC0415

    manifest, facts = load(name)
    refuse_unknown(manifest)
    chosen = _targets(manifest, targets)
    engine = _engine()
    try:
        engine.pull(manifest.base.reference, _watch)
    except BuilderError as error:
        rehearse_instead = Problem(
            "the image cannot be built without its base",
            manifest.where("base"),
            hint=f"rehearse it on a stand-in base: make rehearse IMAGE={name}",
        )
        raise type(error)(*error.problems, rehearse_instead) from error
    _build(
        engine,
        Order(manifest=manifest, facts=facts, gpu_targets=chosen, tag=manifest.tag(chosen), arguments={}),
    )


@main.command()
@click.argument("tag")
def verify(tag: str) -> None:
    """Run the checks of the image TAG in a container of it.

    Example: python -m builder verify vime:rocm7.14-gfx942
    """
    from builder import verify as verifying  # noqa: PLC0415
    from builder.report import Report  # noqa: PLC0415

    engine = _engine()
    image_id = engine.image_id(tag)
    if image_id is None:
        raise UsageError(Problem(f"the engine has no image {tag!r}", hint="python -m builder image IMAGE builds one"))
    name = engine.labels(image_id).get(f"{rendering.LABEL}.image")
    if name is None:
        raise UsageError(Problem(f"{tag!r} is none of our images: it has no label {rendering.LABEL}.image"))
    manifest, facts = load(name)
    verified = verifying.verify(engine, image_id, manifest, facts)
    _show(
        Report(
            image=name,
            image_id=image_id,
            tag=tag,
            gpu_targets=verified.gpu_targets,
            pins=verified.pins,
            arguments={},
            checks=verified.checks,
        )
    )


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


def _watch(event: Event) -> None:
    click.echo(str(event), err=True)


def _build(engine: Engine, order: Order) -> None:
    from builder import build as building  # noqa: PLC0415

    report = building.make(engine, order, _watch)
    path = building.write_report(ROOT, order, report)
    click.echo(f"report: {_shown(path)}", err=True)
    _show(report)
    click.echo(f"\n{report.tag}  {report.image_id}")


def _show(report: Report) -> None:
    click.echo(report.table())
    if not report.passed:
        raise VerificationError(
            Problem(f"{report.count('failed')} of {len(report.checks)} checks failed: no tag given")
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
