"""The commands about images that are built: run, verify, push or lock one, probe a GPU host with one, clean up."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from builder import front
from builder.project import ROOT, alone, kept, load, shown

if TYPE_CHECKING:
    from pathlib import Path

    from builder.engine import Engine
    from builder.observed import Probed

# The docker SDK is imported where it is used: every help does without.


@click.command()
@click.argument("tag", callback=front.reference, shell_complete=front.tags)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--mount", "mounts", multiple=True, metavar="SOURCE=FOLDER", help="A working copy over an editable tree.")
@click.option("--print", "only_print", is_flag=True, help="Run nothing; print the `docker run` that does the same.")
def run(tag: str, command: tuple[str, ...], mounts: tuple[str, ...], only_print: bool) -> None:  # noqa: FBT001
    """Run COMMAND, or a shell, in the image TAG, with this machine's GPUs and what training needs of a host.

    Example: python -m builder run vime:rocm7.14-gfx942 --mount vime=. -- python train.py
    """
    from builder import devices, running  # noqa: PLC0415
    from builder import verify as verifying  # noqa: PLC0415

    folders = running.folders(front.pairs(mounts, "--mount", "--mount vime=."))
    engine = front.engine()
    manifest, _ = load(verifying.made_from(engine, tag))
    binds = running.binds(manifest, folders)
    session = running.session(tag, command, binds, devices.of(is_local=engine.is_local))
    if only_print:
        click.echo(running.command_line(session))
        return
    if not session.host["devices"]:
        front.say(f"no GPU in the container: {devices.why_none(is_local=engine.is_local)}")
    sys.exit(running.run(engine, session, front.say))


@click.command()
@click.argument("tag", callback=front.reference, shell_complete=front.tags)
@front.report_file
@front.strict
@click.option("--tests", is_flag=True, help="The sources' own tests too, as the manifest names them.")
@click.option("--gpu", is_flag=True, help="This machine's GPUs too: the checks of `probe`.")
@click.option("--layers", "by_layer", is_flag=True, help="What each layer holds too: the engine writes the image out.")
def verify(tag: str, file: Path | None, strict: bool, tests: bool, gpu: bool, by_layer: bool) -> None:  # noqa: FBT001, PLR0913, PLR0917 (click's way)
    """Run the checks of the image TAG in a container of it.

    Example: python -m builder verify vime:rocm7.14-gfx942 --report report.xml
    """
    from builder import layers, page, proof, render  # noqa: PLC0415
    from builder import verify as verifying  # noqa: PLC0415
    from builder.files import write_atomically  # noqa: PLC0415
    from builder.report import Report  # noqa: PLC0415

    engine = front.engine()
    name = verifying.made_from(engine, tag)
    manifest, facts = load(name)
    image_id = engine.image_id(tag) or ""
    verified = verifying.verify(engine, image_id, manifest, facts, tests=tests)
    probed = _probed(engine, image_id, facts.python.executable) if gpu and not verified.error else None
    held = (layers.check(engine, image_id, render.render(manifest, facts)),) if by_layer else ()
    known = proof.of(ROOT, image_id)
    report = Report(
        image=name,
        image_id=image_id,
        tag=tag,
        gpu_targets=verified.gpu_targets,
        pins=verified.pins,
        arguments={},
        checks=(*verified.checks, *held, *(probed.checks if probed else ())),
        steps=known.steps if known else (),
        seconds=known.seconds if known else 0.0,
    )
    proof.keep(ROOT, report)
    path = page.write(ROOT, tag, report, page.contents_of(engine, report), {})
    if file:
        write_atomically(file, report.as_file(file))
    if probed:
        _tell(probed)
    front.say(f"report: {shown(path)}")
    if verified.error:
        raise verified.error
    front.show(report, strict=strict)


@click.command()
@click.argument("tag", callback=front.reference, shell_complete=front.tags)
@click.argument("registry")
@click.option("--plain", is_flag=True, help="A line an event, also on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, the last with the digest.")
def push(tag: str, registry: str, plain: bool, as_json: bool) -> None:  # noqa: FBT001
    """Push the verified image TAG to REGISTRY, a host or a folder of one, and print its digest there.

    Example: python -m builder push vime:rocm7.14-gfx942 localhost:5000
    """
    from builder import progress, proof  # noqa: PLC0415
    from builder import push as pushing  # noqa: PLC0415
    from builder import verify as verifying  # noqa: PLC0415
    from builder.trace import Event  # noqa: PLC0415

    name = pushing.name_in(registry, tag)
    engine = front.engine()
    verifying.made_from(engine, tag)
    image_id = engine.image_id(tag) or ""
    report = proof.passed(ROOT, image_id, tag)
    watch = progress.Json(sys.stdout) if as_json else front.watching({}, plain=plain)
    with alone(tag), watch:
        watch(Event("", f"verified: {report.headline}"))
        digest = pushing.push(engine, tag, name, watch, kept(ROOT, tag) / "pushing.json")
    reference = f"{name}@{digest}"
    click.echo(json.dumps({"reference": reference, "image_id": image_id}) if as_json else reference)


@click.command()
@click.argument("name", metavar="IMAGE", shell_complete=front.images)
def lock(name: str) -> None:
    """Keep the versions that IMAGE, built and verified, has installed: its next build installs the same.

    Example: python -m builder lock rocm7.14
    """
    from builder import locking, render  # noqa: PLC0415
    from builder.files import assert_writable, write_together  # noqa: PLC0415

    manifest, facts = load(name)
    for path in (manifest.lock_file, manifest.dockerfile):
        assert_writable(shown(ROOT / path))
    with alone(f"manifest:{name}"):
        image = locking.image_of(front.engine(), manifest, ROOT)
        found = locking.of(image)
        dockerfile = render.render(manifest.with_lock(found), facts)
        write_together(
            {ROOT / manifest.lock_file: found.text(name).encode(), ROOT / manifest.dockerfile: dockerfile.encode()}
        )
    front.say(f"written: {shown(ROOT / manifest.lock_file)}, {shown(ROOT / manifest.dockerfile)}")
    click.echo(f"{len(found.versions)} distributions, as {image.tag} has them")


@click.command()
@click.argument("image", callback=front.reference, shell_complete=front.tags)
@click.option(
    "--python", default=None, help="The image's Python with torch; without it, the first usual one that has it."
)
@front.report_file
@click.option("--json", "as_json", is_flag=True, help="One JSON object: all that was seen, and what it means.")
@front.strict
def probe(image: str, python: str | None, file: Path | None, as_json: bool, strict: bool) -> None:  # noqa: FBT001
    r"""See what this machine's GPUs do for IMAGE, any image with a ROCm torch: masks, products, memory, IPC.

    \b
    0    something was tried, and nothing failed
    21   something failed; or nothing could be tried; or, with --strict, not everything

    Example: python -m builder probe rocm/primus:v26.4
    """
    from builder.errors import Problem, UsageError  # noqa: PLC0415
    from builder.files import write_atomically  # noqa: PLC0415
    from builder.render import LABEL  # noqa: PLC0415
    from builder.report import Report  # noqa: PLC0415

    engine = front.engine()
    image_id = engine.image_id(image)
    if image_id is None:
        raise UsageError(Problem(f"the engine has no image {image!r}", hint=f"docker pull {image}"))
    labels = engine.labels(image_id)
    probed = _probed(engine, image_id, python)
    report = Report(
        image=labels.get(f"{LABEL}.image", image),
        image_id=image_id,
        tag=None,
        gpu_targets=probed.targets,
        pins=labels.get(f"{LABEL}.pins", "unknown"),
        arguments={},
        checks=probed.checks,
    )
    if file:
        write_atomically(file, report.as_file(file))
    if as_json:
        click.echo(probed.json(), nl=False)
    else:
        _tell(probed)
        click.echo(report.table())
    hint = "docs/gpu.md has what each check means, and what to change"
    front.assert_passed(report, probed.sentence, hint, strict=strict)


def _probed(engine: Engine, image_id: str, python: str | None) -> Probed:
    from builder import devices, probing  # noqa: PLC0415

    found = devices.of(is_local=engine.is_local)
    if not found.paths:
        front.say(f"no GPU in the container: {devices.why_none(is_local=engine.is_local)}")
    return probing.probe(engine, image_id, python, found)


def _tell(probed: Probed) -> None:
    from builder.told import plain  # noqa: PLC0415

    if probed.table:
        click.echo(plain(probed.table) + "\n")
    click.echo(click.wrap_text(plain(probed.sentence), width=80) + "\n")


@click.command()
@click.option("--images", is_flag=True, help="Finished images too.")
@click.option("--caches", is_flag=True, help="The compiler's cache, pip's, and the logs of compile steps too.")
def clean(images: bool, caches: bool) -> None:  # noqa: FBT001 (click's way)
    """Remove what this tool has left in the engine: containers, stand-ins, rehearsals, images without a tag.

    And the proofs of images that the engine no longer has.

    Example: python -m builder clean --caches
    """
    from builder import cleaning  # noqa: PLC0415
    from builder.connection import answering  # noqa: PLC0415

    freed = 0
    with answering("the clean-up"):
        for removed in cleaning.clean(front.engine(), ROOT, images=images, caches=caches):
            freed += removed.bytes
            click.echo(f"kept {removed.what}: {removed.kept}" if removed.kept else f"removed {removed.what}")
    click.echo(f"at most {freed / 1e9:.1f} GB are free again; layers that others use stay")


@click.command("engine")
def show_engine() -> None:
    """Say which container engine is used, or why there is none.

    Example: python -m builder engine
    """
    engine = front.engine()
    click.echo(f"engine {engine.version} at {engine.address}")
