"""The commands about pins, which need no engine: prove them, see the patches, change them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder import front
from builder.errors import DriftError, PreflightError, Problem
from builder.project import ROOT, alone, known_images, load, shown

if TYPE_CHECKING:
    from builder.report import Report

_offline = click.option("--offline", is_flag=True, help="Ask no host; what is not in the cache could not run.")
_report = click.option(
    "--report", "file", type=click.Path(path_type=Path), help="Write it there too: .json, .xml, .md or .txt."
)


@click.command()
@click.argument("name", metavar="IMAGE")
@_offline
@_report
@front.as_json
@front.strict
def preflight(name: str, offline: bool, file: Path | None, as_json: bool, strict: bool) -> None:  # noqa: FBT001
    """Prove IMAGE's pins: references, patches, and every name that one source imports from another.

    Example: python -m builder preflight rocm7.14 --offline
    """
    from builder import preflight as proving  # noqa: PLC0415
    from builder.report import assert_format, write_atomically  # noqa: PLC0415

    if file:
        assert_format(file)
    manifest, _ = load(name)
    report = proving.run(manifest, ROOT, offline=offline)
    if file:
        write_atomically(file, report.as_file(file))
    _show(report, as_json=as_json, strict=strict)


@click.command()
@click.argument("name", metavar="IMAGE")
@_offline
def patches(name: str, offline: bool) -> None:  # noqa: FBT001
    """Say of each patch of IMAGE whether it applies to the pinned tree, and if not, why.

    Example: python -m builder patches rocm7.14
    """
    import tempfile  # noqa: PLC0415

    from builder import preflight as proving  # noqa: PLC0415
    from builder.patches import REMEDIES  # noqa: PLC0415

    manifest, _ = load(name)
    faults: list[Problem] = []
    with tempfile.TemporaryDirectory(prefix="patches-") as scratch:
        trees = proving.Trees(manifest, ROOT / ".cache", Path(scratch), offline)
        patched = [source for source in manifest.sources.values() if source.patches]
        try:
            found = [(source, *one) for source in patched for one in proving.verdicts_of(manifest, ROOT, source, trees)]
        except (proving.Untried, proving.Fault) as reason:
            hint = reason.hint if isinstance(reason, proving.Fault) else None
            raise PreflightError(Problem(str(reason), manifest.where("sources"), hint)) from reason
    for source, patch, verdict in found:
        click.echo(f"{source.name}  {patch.path}  {verdict.kind}{f': {verdict.detail}' if verdict.detail else ''}")
        if not verdict.good:
            where = manifest.where("sources", source.name, "patches")
            faults.append(Problem(f"{patch.path}: {verdict.kind}", where, REMEDIES[verdict.kind]))
    if faults:
        raise PreflightError(*faults)


@click.command()
@click.argument("name", metavar="IMAGE", required=False)
@click.argument("pins", metavar="[SOURCE=REFERENCE]...", nargs=-1)
@_offline
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--keep-going", is_flag=True, help="Write although the preflight has found faults; they are told.")
@click.option("--check-drift", is_flag=True, help="Only say whether a tag has left its pin.")
@click.option("--summary", "file", type=click.Path(path_type=Path), help="Write it there, for a pull request.")
def bump(  # noqa: PLR0913, PLR0917 (click's way)
    name: str | None,
    pins: tuple[str, ...],
    offline: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    keep_going: bool,  # noqa: FBT001
    check_drift: bool,  # noqa: FBT001
    file: Path | None,
) -> None:
    """Pin other commits in IMAGE's manifest, if they hold: nothing is written before the preflight has passed.

    Example: python -m builder bump rocm7.14 vllm=v0.30.0
    """
    from builder import bump as bumping  # noqa: PLC0415
    from builder.report import write_atomically  # noqa: PLC0415

    if check_drift:
        found = [problem for image in ([name] if name else known_images()) for problem in bumping.drift(load(image)[0])]
        if found:
            raise DriftError(*found)
        return
    if not (name and pins):
        raise click.UsageError("an image and at least one SOURCE=REFERENCE are wanted")
    manifest, facts = load(name)
    wanted = dict(front.pair(pin, "a pin") for pin in pins)
    with alone(f"manifest:{name}"):
        prepared = bumping.prepare(manifest, facts, wanted, ROOT, offline=offline)
        path = ROOT / manifest.dockerfile
        old = path.read_text("utf-8") if path.is_file() else ""
        for change in prepared.changes:
            click.echo(f"{'.'.join(change.key)}: {change.before} -> {change.after}", err=True)
        click.echo(prepared.report.table())
        if file:
            write_atomically(file, bumping.summary(manifest, prepared, old))
        if not keep_going:
            bumping.assert_holds(prepared)
        if not dry_run:
            prepared.write(ROOT)
            click.echo(f"written: {shown(manifest.path)}, {shown(path)}", err=True)
    if not prepared.report.passed and keep_going:
        sys.exit(PreflightError.exit_code)


def _show(report: Report, *, as_json: bool, strict: bool) -> None:
    front.print_report(report, as_json=as_json)
    failed = [check for check in report.checks if check.outcome == "failed"]
    if failed or not report.passed or (strict and not report.passed_strictly):
        untried = report.count("could not run")
        raise PreflightError(Problem(f"{len(failed)} of {len(report.checks)} probes failed, {untried} could not run"))
