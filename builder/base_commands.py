"""The commands about what a build stands on: the facts of a base, read from it; engine, registry and machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from builder import front
from builder.errors import EngineError, MachineError, Problem, UsageError
from builder.project import ROOT, alone, known_images, load, shown
from builder.told import plain

if TYPE_CHECKING:
    from pathlib import Path

    from builder.facts import Facts

# The docker SDK and rich are imported where they are used: every help does without.


@click.command()
@click.argument("base", shell_complete=front.bases)
@click.option("--image", metavar="NAME:TAG[@DIGEST]", help="Of a base that has no file yet, or another one.")
@click.option("--dry-run", is_flag=True, help="Write nothing; show what would change.")
def facts(base: str, image: str | None, dry_run: bool) -> None:  # noqa: FBT001 (click's way)
    """Read the facts of BASE in one container of it, show how they differ from images/bases/BASE.yaml, and write them.

    Example: python -m builder facts primus-v26.4
    """
    from builder import facts as bases  # noqa: PLC0415
    from builder import reading, recording, registry  # noqa: PLC0415
    from builder import vocabulary as v  # noqa: PLC0415
    from builder.files import assert_writable, write_atomically  # noqa: PLC0415
    from builder.trace import Event  # noqa: PLC0415

    path = shown(ROOT / bases.FOLDER / f"{base}.yaml")
    known = _published(path, base, image)
    if image:
        name, digest = _reference(image)
    else:
        name, digest = (known.image, known.digest) if known else ("", "")
    if not dry_run:
        assert_writable(path)
    engine = front.engine()
    with alone(f"facts:{base}"), front.watching({}, plain=False) as watch:
        registry.pull(engine, name if digest == v.UNKNOWN else f"{name}@{digest}", watch)
        watch(Event("", f"reading {name} in a container of it"))
        found = reading.read(engine, name, digest, known.python.executable if known else None)
    for remark in found.remarks:
        front.say(plain(f"remark: {remark}"))
    wrong = list(reading.differences(known, found.facts)) if known else []
    old = path.read_text("utf-8") if known else ""
    merged = recording.merged(known, found.facts, [each.key for each in wrong])
    text = recording.text(base, merged, known, old)
    for line in recording.difference(str(path), old, text):
        click.echo(plain(line))
    front.say(f"{len(wrong)} facts were others than published")
    if text == old:
        front.say(f"{path} is what the image says")
    elif not dry_run:
        write_atomically(path, text)
        front.say(f"written: {path}")


def _published(path: Path, base: str, image: str | None) -> Facts | None:
    """What the file says; None where there is none yet, and an image is named to read.

    Raises:
        UsageError: where neither is there, or the base or the image can have no such name.
    """
    from pydantic_core import PydanticCustomError  # noqa: PLC0415

    from builder import facts as bases  # noqa: PLC0415
    from builder import schema  # noqa: PLC0415
    from builder import vocabulary as v  # noqa: PLC0415

    try:
        v.facts_name(base)
    except PydanticCustomError as error:
        raise UsageError(Problem(str(error), hint=(error.context or {}).get("hint"))) from None
    if image:
        _reference(image)
    if path.is_file():
        return bases.load(path)
    if image:
        return None
    known = [found.stem for found in path.parent.glob("*.yaml")]
    hint = schema.did_you_mean(base, known) or f"of a new base: python -m builder facts {base} --image NAME:TAG"
    raise UsageError(Problem(f"no file {str(path)!r}", hint=hint))


def _reference(image: str) -> tuple[str, str]:
    """Name and digest of `NAME:TAG[@DIGEST]`; without one, the digest is unknown.

    Raises:
        UsageError: where an image can have no such name.
    """
    from pydantic_core import PydanticCustomError  # noqa: PLC0415

    from builder import vocabulary as v  # noqa: PLC0415

    name, _, digest = image.partition("@")
    try:
        return v.image(name), v.digest(digest or v.UNKNOWN)
    except PydanticCustomError as error:
        raise UsageError(Problem(str(error), hint=(error.context or {}).get("hint"))) from None


@click.command()
@click.argument("name", metavar="IMAGE")
@click.option("--base", "reference", required=True, metavar="NAME:TAG[@DIGEST]", help="What it is built on.")
def new(name: str, reference: str) -> None:
    """Start IMAGE: write its manifest on a base, and say what comes next.

    Example: python -m builder new rocm7.15 --base rocm/primus:v26.5
    """
    from builder import facts as bases  # noqa: PLC0415
    from builder import starting  # noqa: PLC0415
    from builder import vocabulary as v  # noqa: PLC0415
    from builder.files import write_atomically  # noqa: PLC0415

    _assert_free(name)
    path = shown(ROOT / "images" / f"{name}.yaml")
    image, digest = _reference(reference)
    if digest == v.UNKNOWN:
        digest = _asked(image)
    base, facts = starting.base(image, digest, ROOT / bases.FOLDER)
    with alone(f"manifest:{name}"):
        write_atomically(path, starting.manifest(path, base, facts))
    front.say(f"written: {path}")
    front.say("next, as docs/new-image.md has it:")
    for step in starting.steps(name, base, facts):
        click.echo(f"  {step}")


def _assert_free(name: str) -> None:
    """Refuse what can name no image, and what would have the tags of another one.

    Raises:
        UsageError
    """
    from builder.consistency import in_tag  # noqa: PLC0415
    from builder.manifest import NAMED, is_name  # noqa: PLC0415

    if not is_name(name):
        raise UsageError(Problem(f"{name!r} is no name of an image", hint=NAMED))
    for other in known_images():
        if in_tag(other) == in_tag(name):
            hint = f"take another name, or see what it has: python -m builder check {other}"
            raise UsageError(Problem(f"there is an image {other!r} already", hint=hint))


def _asked(image: str) -> str:
    """The digest of an image in its registry; unknown, and said so, where nobody can ask."""
    from builder import registry  # noqa: PLC0415
    from builder import vocabulary as v  # noqa: PLC0415

    try:
        return registry.digest(front.engine(), image)
    except EngineError as error:
        front.say(f"its digest stays unknown: {error.problems[0].message}")
        return v.UNKNOWN


@click.command()
@click.argument("images", nargs=-1, shell_complete=front.images)
@front.as_json
@front.strict
def doctor(images: tuple[str, ...], as_json: bool, strict: bool) -> None:  # noqa: FBT001 (click's way)
    """Say whether this machine, its engine and the registry can build IMAGES (all, if none is named).

    Example: python -m builder doctor rocm7.14
    """
    import contextlib  # noqa: PLC0415

    from builder import doctor as asking  # noqa: PLC0415

    manifests = [load(name) for name in images or known_images()]
    with contextlib.closing(asking.Machine()) as machine:
        report = asking.run(machine, manifests)
    front.print_report(report, as_json=as_json)
    failed, untried = report.count("failed"), report.count("could not run")
    if failed or (strict and untried):
        raise MachineError(Problem(f"{failed} of {len(report.checks)} have a problem, {untried} could not run"))
