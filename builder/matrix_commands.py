"""The command about all images at once: what there is to build, for machines that build it."""

from __future__ import annotations

import click

from builder import manifest as manifests
from builder.project import ROOT, known_images, load


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

    images = [load(name) for name in known_images()]
    for manifest, _ in images:
        for problem in manifests.unknowns(manifest):
            click.echo(f"{manifest.name} is left out: {problem.message}", err=True)
    found = listing.orders(images)
    if changed_since is not None:
        found = listing.changed_since(changed_since, found, ROOT)
    click.echo(listing.FORMATS[form](found), nl=False)
