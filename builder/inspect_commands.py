"""The commands that tell about finished images and change nothing."""

from __future__ import annotations

import click

from builder import front
from builder.project import ROOT, load

# The docker SDK is imported where it is used: every help does without.
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.command()
@click.argument("tag", callback=front.reference, shell_complete=front.tags)
@_as_json
def explain(tag: str, as_json: bool) -> None:  # noqa: FBT001 (click's way)
    """Say what made the image TAG, and whether this checkout would make the same.

    Manifest, pins, plans, checks; then "identical", or each step, file and key that is another today.

    Example: python -m builder explain vime:rocm7.14-gfx942
    """
    from builder import explain as explaining  # noqa: PLC0415
    from builder import made  # noqa: PLC0415

    explanation = explaining.explain(made.read(front.engine(), tag), ROOT)
    click.echo(explanation.json() if as_json else explanation.text())


@click.command()
@click.argument("tag", callback=front.reference, shell_complete=front.tags)
def sbom(tag: str) -> None:
    """List the software of the image TAG as CycloneDX: Python distributions, Debian packages, git sources.

    Each distribution has its flavour and where it came from: a source, a plan, a build tool, the base; or unknown.

    Example: python -m builder sbom vime:rocm7.14-gfx942
    """
    from builder import made  # noqa: PLC0415
    from builder import sbom as materials  # noqa: PLC0415
    from builder.errors import BuilderError  # noqa: PLC0415

    engine = front.engine()
    image = made.read(engine, tag)
    try:
        facts = load(image.name)[1]
    except BuilderError as error:
        front.say(f"what came with the base is told as far as it is sealed: {error.problems[0].message}")
        facts = None
    click.echo(materials.of(engine, image, facts), nl=False)


def _side(context: click.Context, parameter: click.Parameter, text: str) -> str | None:
    return front.reference(context, parameter, text) if ":" in text else text


@click.command()
@click.argument("a", callback=_side, shell_complete=front.sides)
@click.argument("b", callback=_side, shell_complete=front.sides)
@click.option("--format", "shape", type=click.Choice(["table", "json", "markdown"]), default="table")
def diff(a: str, b: str, shape: str) -> None:
    r"""Compare A and B: pins, distributions, variables, layers by size, checks.

    \b
    NAME:TAG         an image, because of its colon
    NAME@REVISION    a manifest at a revision of git
    NAME             the manifest as it stands

    Example: python -m builder diff vime:rocm7.14-gfx942 rocm7.14
    """
    from builder import diff as comparing  # noqa: PLC0415
    from builder import side  # noqa: PLC0415

    # A wrong manifest is told before any engine is asked.
    sides = {text: side.of(text, front.engine) for text in sorted((a, b), key=side.is_image)}
    click.echo(comparing.FORMATS[shape](comparing.diff(sides[a], sides[b])))
