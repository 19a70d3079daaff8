"""The commands about images that are built: run one, verify one, clean up."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from builder import front
from builder.project import load

# The docker SDK is imported where it is used: every help does without.


@click.command()
@click.argument("tag")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--mount", "mounts", multiple=True, metavar="SOURCE=FOLDER", help="A working copy over an editable tree.")
@click.option("--print", "only_print", is_flag=True, help="Run nothing; print the `docker run` that does the same.")
def run(tag: str, command: tuple[str, ...], mounts: tuple[str, ...], only_print: bool) -> None:  # noqa: FBT001
    """Run COMMAND, or a shell, in the image TAG, with this machine's GPUs and what training needs of a host.

    Example: python -m builder run vime:rocm7.14-gfx942 --mount vime=. -- python train.py
    """
    from builder import devices, running  # noqa: PLC0415
    from builder import verify as verifying  # noqa: PLC0415

    engine = front.engine()
    manifest, _ = load(verifying.made_from(engine, tag))
    binds = running.binds(manifest, dict(front.pair(mount, "--mount") for mount in mounts))
    session = running.session(tag, command, binds, devices.of_host())
    if only_print:
        click.echo(running.command_line(session))
        return
    if not session.host["devices"]:
        click.echo(f"this machine has no {devices.KFD}: no GPU in the container", err=True)
    sys.exit(running.run(engine, session, lambda remark: click.echo(remark, err=True)))


@click.command()
@click.argument("tag")
@click.option("--report", "file", type=click.Path(path_type=Path), help="Write it there too: .json, .xml, .md or .txt.")
@front.strict
@click.option("--tests", is_flag=True, help="The sources' own tests too, as the manifest names them.")
def verify(tag: str, file: Path | None, strict: bool, tests: bool) -> None:  # noqa: FBT001
    """Run the checks of the image TAG in a container of it.

    Example: python -m builder verify vime:rocm7.14-gfx942 --report report.xml
    """
    from builder import verify as verifying  # noqa: PLC0415
    from builder.report import Report, assert_format, write_atomically  # noqa: PLC0415

    if file:
        assert_format(file)
    engine = front.engine()
    name = verifying.made_from(engine, tag)
    manifest, facts = load(name)
    image_id = engine.image_id(tag) or ""
    verified = verifying.verify(engine, image_id, manifest, facts, tests=tests)
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
    front.show(report, strict=strict)


@click.command()
@click.option("--images", is_flag=True, help="Finished images too.")
@click.option("--caches", is_flag=True, help="The compiler's cache, pip's, and the logs of compile steps too.")
def clean(images: bool, caches: bool) -> None:  # noqa: FBT001 (click's way)
    """Remove what this tool has left in the engine: containers, stand-ins, rehearsals, images without a tag.

    Example: python -m builder clean --caches
    """
    from builder import cleaning  # noqa: PLC0415
    from builder.connection import answering  # noqa: PLC0415

    freed = 0
    with answering("the clean-up"):
        for removed in cleaning.clean(front.engine(), images=images, caches=caches):
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
