"""The commands about pins, which need no engine: prove them, see the patches, change them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder import front
from builder.errors import DriftError, DriftUnaskedError, PreflightError, Problem, UsageError
from builder.project import ROOT, alone, known_images, load, shown
from builder.told import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from builder.bump import Bump, Change
    from builder.report import Report

_offline = click.option("--offline", is_flag=True, help="Ask no host; what is not in the cache could not run.")


@click.command()
@click.argument("name", metavar="IMAGE", shell_complete=front.images)
@_offline
@front.report_file
@front.as_json
@front.strict
def preflight(name: str, offline: bool, file: Path | None, as_json: bool, strict: bool) -> None:  # noqa: FBT001
    """Prove IMAGE's pins: references, patches, every name that one source imports from another; and engine and base.

    Example: python -m builder preflight rocm7.14 --offline
    """
    from builder import doctor as asking  # noqa: PLC0415
    from builder import preflight as proving  # noqa: PLC0415
    from builder.files import write_atomically  # noqa: PLC0415

    manifest, facts = load(name)
    with contextlib.closing(asking.Machine()) as machine:
        base = asking.of_builds(machine, [(manifest, facts)], offline=offline)
        report = proving.run(manifest, facts, ROOT, offline=offline, more=base)
    if file:
        write_atomically(file, report.as_file(file))
    _show(report, as_json=as_json, strict=strict)


@click.command()
@click.argument("name", metavar="IMAGE", shell_complete=front.images)
@_offline
def patches(name: str, offline: bool) -> None:  # noqa: FBT001
    """Say of each patch of IMAGE whether it applies to the pinned tree, and if not, why.

    Example: python -m builder patches rocm7.14
    """
    import tempfile  # noqa: PLC0415

    from builder import preflight as proving  # noqa: PLC0415
    from builder import probes  # noqa: PLC0415
    from builder.patches import REMEDIES  # noqa: PLC0415

    manifest, _ = load(name)
    faults: list[Problem] = []
    with tempfile.TemporaryDirectory(prefix="patches-") as scratch:
        trees = probes.Trees(manifest, ROOT / ".cache", Path(scratch), offline)
        patched = [source for source in manifest.sources.values() if source.patches]
        try:
            found = [(source, *one) for source in patched for one in proving.patched(manifest, ROOT, source, trees)[1]]
        except (probes.Untried, probes.Fault) as reason:
            hint = reason.hint if isinstance(reason, probes.Fault) else None
            raise PreflightError(Problem(str(reason), manifest.where("sources"), hint)) from reason
    for source, patch, verdict in found:
        detail = f": {verdict.detail}" if verdict.detail else ""
        click.echo(plain(f"{source.name}  {patch.path}  {verdict.kind}{detail}"))
        if not verdict.good:
            where = manifest.where("sources", source.name, "patches")
            faults.append(Problem(f"{patch.path}: {verdict.kind}", where, REMEDIES[verdict.kind]))
    if faults:
        raise PreflightError(*faults)


@click.command()
@click.argument("words", metavar="[IMAGE] [SOURCE=REFERENCE]... [base=TAG]", nargs=-1, shell_complete=front.images)
@_offline
@click.option("--all-images", is_flag=True, help="In every image that has what is pinned; all are written, or none.")
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--keep-going", is_flag=True, help="Write although the preflight has found faults; they are told.")
@click.option("--check-drift", is_flag=True, help="Only say whether a tag, or a base's, has left its pin.")
@click.option("--summary", "file", type=click.Path(path_type=Path), help="Write it there, for a pull request.")
def bump(  # noqa: PLR0913, PLR0917 (click's way)
    words: tuple[str, ...],
    offline: bool,  # noqa: FBT001
    all_images: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    keep_going: bool,  # noqa: FBT001
    check_drift: bool,  # noqa: FBT001
    file: Path | None,
) -> None:
    """Pin other commits in IMAGE's manifest, or another base, if they hold: nothing is written before that is proved.

    Example: python -m builder bump rocm7.14 vllm=v0.30.0
    """
    from builder import bump as bumping  # noqa: PLC0415
    from builder.files import assert_writable  # noqa: PLC0415

    images, wanted = _meant(words, all_images=all_images, check_drift=check_drift)
    if check_drift:
        _assert_no_drift(images, offline=offline)
        return
    _assert_pinned(images, wanted, some=all_images)
    if file:
        assert_writable(file)
    with _manifests_alone(images):
        bumps = _all_prepared(images, wanted, offline=offline, some=all_images)
        if file:
            _write_summary(file, bumps, offline=offline)
        if not keep_going:
            bumping.assert_all_hold(bumps)
        if not dry_run:
            _write(bumps)
    if problems := [problem for one in bumps for problem in one.problems]:
        raise PreflightError(*problems)
    if keep_going and not all(one.report.passed for one in bumps):
        sys.exit(PreflightError.exit_code)


def _meant(words: Sequence[str], *, all_images: bool, check_drift: bool) -> tuple[list[str], dict[str, str]]:
    """The images, and the references by source."""
    named = [word for word in words[:1] if "=" not in word]
    pins = words[len(named) :]
    if check_drift and pins:
        raise click.UsageError("--check-drift asks for the pins that there are: no SOURCE=REFERENCE goes with it")
    if not check_drift and (not pins or bool(named) == all_images):
        raise click.UsageError("an image (or --all-images) and at least one SOURCE=REFERENCE are wanted")
    return named if named and not all_images else known_images(), front.pairs(pins, "a pin", "vllm=v0.30.0")


def _assert_pinned(images: Sequence[str], wanted: Mapping[str, str], *, some: bool) -> None:
    """Refuse what no image pins, before any is locked or anybody is asked.

    Args:
        some: whether an image may lack what another one has.

    Raises:
        UsageError: with the near one.
    """
    from builder import base_pin, schema  # noqa: PLC0415
    from builder import bump as bumping  # noqa: PLC0415

    names = [name for name in wanted if name != base_pin.KEY]
    manifests = [load(image)[0] for image in images]
    for manifest in manifests:
        if base_pin.KEY in wanted:
            base_pin.image(manifest, wanted[base_pin.KEY])
        if not some:
            bumping.assert_sources(manifest, names)
    known = sorted({name for manifest in manifests for name in manifest.sources})
    for name in names:
        if name not in known:
            raise UsageError(Problem(f"no image has {name}", hint=schema.near_or_known(name, known)))


@contextlib.contextmanager
def _manifests_alone(images: Sequence[str]) -> Iterator[None]:
    with contextlib.ExitStack() as locks:
        for image in images:
            locks.enter_context(alone(f"manifest:{image}"))
        yield


def _write(bumps: Sequence[Bump]) -> None:
    from builder import bump as bumping  # noqa: PLC0415

    bumping.write(bumps, ROOT)
    for one in bumps:
        written = [*one.files, ROOT / one.manifest.dockerfile]
        front.say(f"written: {', '.join(str(shown(path)) for path in written)}")
        if one.drops_lock:
            front.say(f"removed: {shown(ROOT / one.manifest.lock_file)}")


def _write_summary(file: Path, bumps: Sequence[Bump], *, offline: bool) -> None:
    from builder import summary  # noqa: PLC0415
    from builder.files import write_atomically  # noqa: PLC0415

    write_atomically(file, "\n".join(summary.of(one, ROOT, offline=offline) for one in bumps))


def _all_prepared(images: Sequence[str], wanted: Mapping[str, str], *, offline: bool, some: bool) -> list[Bump]:
    """The bump of each image, shown; no other image has its pins from the same files.

    Args:
        some: only of the images that have what is pinned.
    """
    from builder import bump as bumping  # noqa: PLC0415

    found = [each for image in images if (each := _prepared(image, wanted, offline=offline, some=some))]
    others = set(known_images()) - {one.manifest.name for one in found}
    bumping.assert_no_other_image_changes(found, [load(name)[0] for name in sorted(others)])
    return found


def _prepared(image: str, wanted: Mapping[str, str], *, offline: bool, some: bool) -> Bump | None:
    """A manifest with other pins, shown.

    Args:
        some: only the pins that this image has; None where it has none of them.
    """
    from dataclasses import replace  # noqa: PLC0415

    from builder import base_pin  # noqa: PLC0415
    from builder import bump as bumping  # noqa: PLC0415
    from builder import facts as bases  # noqa: PLC0415

    manifest, facts = load(image)
    pins = {name: pin for name, pin in wanted.items() if not some or name in {*manifest.sources, base_pin.KEY}}
    if some and not pins:
        front.say(f"{image}: has none of {', '.join(wanted)}")
        return None
    tag = pins.pop(base_pin.KEY, None)
    more: tuple[Change, ...] = ()
    if tag:
        if offline:
            raise UsageError(
                Problem(f"{base_pin.KEY}={tag} asks a registry, and --offline is given", hint="leave --offline out")
            )
        base = base_pin.image(manifest, tag)
        more = base_pin.changes(front.engine(), manifest, base, ROOT / bases.FOLDER)
        chosen = next((change.after for change in more if change.key[-1] == "facts"), None)
        facts = bases.load(ROOT / bases.FOLDER / f"{chosen}.yaml") if chosen else facts
    prepared = bumping.prepare(manifest, facts, pins, ROOT, offline=offline, more=more)
    prepared = replace(prepared, problems=tuple(base_pin.facts_problems(prepared.manifest, shown(ROOT))))
    for change in prepared.changes:
        key = ".".join((image, *change.key) if some else change.key)
        front.say(f"{key}: {change.before} -> {change.after}")
    if prepared.drops_lock:
        then = f"python -m builder lock {image}"
        front.say(f"{manifest.lock_file} is of the pins before, and goes; once an image of these is verified: {then}")
    click.echo(prepared.report.table())
    return prepared


def _assert_no_drift(images: Sequence[str], *, offline: bool) -> None:
    """Show whether each tag is where its pin says.

    Raises:
        DriftError: where one is elsewhere, or gone.
        DriftUnaskedError: where that is known of none, and could not be asked of all.
    """
    from dataclasses import replace  # noqa: PLC0415

    from builder import doctor as asking  # noqa: PLC0415
    from builder import preflight as proving  # noqa: PLC0415
    from builder import probes  # noqa: PLC0415

    manifests = [load(image)[0] for image in images]
    asked: list[probes.Probe] = []
    with contextlib.closing(asking.Machine()) as machine:
        for manifest in manifests:
            tagged = [source for source in manifest.sources.values() if source.tag]
            of_image = [
                *proving.references(manifest, tagged, offline=offline),
                asking.base_tag(machine, manifest, offline=offline),
            ]
            asked += [replace(probe, name=f"{manifest.name}: {probe.name}") for probe in of_image]
        checks = probes.answers(asked)
    targets = [target for manifest in manifests for target in manifest.gpu_targets]
    report = probes.report(", ".join(images), targets, checks)
    click.echo(report.table())
    if failed := report.count("failed"):
        raise DriftError(Problem(f"{failed} of {len(checks)} tags are no longer at their pins"))
    if untried := report.count("could not run"):
        hint = "the reasons are above; python -m builder doctor says what this machine reaches"
        raise DriftUnaskedError(Problem(f"{untried} of {len(checks)} tags could not be asked for", hint=hint))


def _show(report: Report, *, as_json: bool, strict: bool) -> None:
    front.print_report(report, as_json=as_json)
    failed = [check for check in report.checks if check.outcome == "failed"]
    if failed or not report.passed or (strict and not report.passed_strictly):
        untried = report.count("could not run")
        raise PreflightError(Problem(f"{len(failed)} of {len(report.checks)} probes failed, {untried} could not run"))
