"""The commands that tell about finished images and change nothing."""

from __future__ import annotations

import click

from builder import front
from builder.project import ROOT

# The docker SDK is imported where it is used: every help does without.
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.command()
@click.argument("tag")
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
