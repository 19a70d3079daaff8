"""The front door: the only room that prints and ends."""

from __future__ import annotations

import shlex
import signal
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

import click

from builder import (
    base_commands,
    build_commands,
    front,
    image_commands,
    inspect_commands,
    matrix_commands,
    pin_commands,
)
from builder.errors import OUR_FAULT, STOPPED, BuilderError, Problem
from builder.files import write_atomically, writing
from builder.project import ROOT, alone, assert_fresh, assert_known, known_images, load, shown
from builder.told import LOG

if TYPE_CHECKING:
    from pathlib import Path


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Generated Dockerfiles for ROCm training images: checked, rehearsed, built, verified.

    Example: python -m builder rehearse rocm7.14
    """


@main.command()
@click.argument("images", nargs=-1, shell_complete=front.images)
def check(images: tuple[str, ...]) -> None:
    """Check the manifests of IMAGES (all, if none is named) and that their Dockerfiles are fresh.

    Example: python -m builder check rocm7.14
    """
    from builder import manifest as manifests  # noqa: PLC0415
    from builder import render as rendering  # noqa: PLC0415

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
@click.argument("images", nargs=-1, shell_complete=front.images)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail if a file is stale.")
def render(images: tuple[str, ...], only_check: bool) -> None:  # noqa: FBT001 - click's way
    """Write the Dockerfiles of IMAGES (all, if none is named).

    Example: python -m builder render rocm7.14
    """
    from builder import render as rendering  # noqa: PLC0415

    for name in images or known_images():
        if only_check:
            manifest, facts = load(name)
            assert_fresh(manifest, rendering.render(manifest, facts))
        else:
            click.echo(shown(_rendered(name)))


def _rendered(name: str) -> Path:
    """The Dockerfile of an image, written; a bump of its manifest does not come in between."""
    from builder import render as rendering  # noqa: PLC0415

    assert_known(name)  # what is no image needs no lock
    with alone(f"manifest:{name}"):
        manifest, facts = load(name)
        write_atomically(ROOT / manifest.dockerfile, rendering.render(manifest, facts))
    return ROOT / manifest.dockerfile


for _command in (
    *(build_commands.rehearse, build_commands.image, build_commands.debug),
    *(base_commands.new, base_commands.facts, base_commands.doctor, matrix_commands.matrix),
    *(pin_commands.preflight, pin_commands.patches, pin_commands.bump),
    *(image_commands.run, image_commands.verify, image_commands.push, image_commands.lock, image_commands.probe),
    *(inspect_commands.explain, inspect_commands.sbom, inspect_commands.diff),
    *(image_commands.clean, image_commands.show_engine),
):
    main.add_command(_command)
for _command in (main, *main.commands.values()):
    _command.params += front.loudness()


class Terminated(BaseException):
    """SIGTERM. It goes the way of an exception, so that a build gives back what it holds in the engine."""


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def run() -> NoReturn:
    """One command; 0 is good, each kind of failure has its exit code in errors.py."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with writing():
            main(standalone_mode=False)
    except BuilderError as error:
        LOG.debug("what led to the error:", exc_info=error)
        click.echo(error, err=True)
        if not any(problem.hint for problem in error.problems):
            click.echo(f"    hint: {error.remedy}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _stopped(signal.SIGINT)
    except Terminated:
        _stopped(signal.SIGTERM)
    except Exception as error:  # noqa: BLE001 (the last door: whatever comes here is no user's mistake)
        traceback.print_exception(error)
        command = shlex.join(["python", "-m", "builder", *sys.argv[1:]])
        hint = f"report it with the traceback above, what `git describe --always --dirty` prints, and: {command}"
        click.echo(Problem(f"a fault of vime-images itself: {type(error).__name__}", hint=hint), err=True)
        sys.exit(OUR_FAULT)
    sys.exit(0)


def _stopped(by: signal.Signals) -> NoReturn:
    click.echo("stopped", err=True)
    sys.exit(STOPPED + by)
