"""What the commands with a container engine share: finding it, and showing what a build came to."""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from builder.errors import BuilderError, Problem, UsageError, VerificationError
from builder.project import ROOT, known_images
from builder.told import LOG, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TextIO

    from builder.engine import Engine
    from builder.progress import Live, Plain
    from builder.report import Report


EPOCH = "SOURCE_DATE_EPOCH"  # https://reproducible-builds.org/specs/source-date-epoch/
as_json = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line on standard output, the report last, no table."
)
strict = click.option("--strict", is_flag=True, help="What could not run is a failure too.")


def _writable(_context: click.Context, _parameter: click.Parameter, file: Path | None) -> Path | None:
    """A report's file, refused before the work where it cannot be written."""
    from builder.report import assert_format  # noqa: PLC0415

    if file:
        assert_format(file)
    return file


report_file = click.option(
    "--report",
    "file",
    type=click.Path(path_type=Path),
    callback=_writable,
    help="Write it there too: .json, .xml, .md or .txt.",
)


class _OnStandardError(logging.Handler):
    """Talk, where standard error is when it is said."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(plain(self.format(record)), err=True)


LOG.addHandler(_OnStandardError())


def loudness() -> list[click.Parameter]:
    """-q and -v, for every command and for all of them; the last one given holds."""

    def of(level: int) -> Callable[[click.Context, click.Parameter, bool], None]:
        return lambda _context, _parameter, given: LOG.setLevel(level) if given else None

    ways = (
        ("-q", "--quiet", logging.ERROR, "Say nothing but errors and data."),
        (
            "-v",
            "--verbose",
            logging.DEBUG,
            "Tell what git, engine and index are asked, with seconds; why an error came.",
        ),
    )
    return [
        click.Option([short, long], is_flag=True, expose_value=False, callback=of(level), help=text)
        for short, long, level, text in ways
    ]


def as_loud() -> list[str]:
    """The option that makes another process of ours as loud as this one."""
    return {logging.ERROR: ["-q"], logging.DEBUG: ["-v"]}.get(LOG.level, [])


def say(text: object) -> None:
    """Tell what is neither data nor an error."""
    LOG.info("%s", text)


def talk() -> TextIO:
    """Where talk goes that comes as a stream: standard error, or nowhere."""
    return sys.stderr if LOG.isEnabledFor(logging.INFO) else open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 (for as long as the command lives)


def watching(earlier: Mapping[str, float], *, plain: bool) -> Plain | Live:
    """Whoever watches a build, a pull or a push; a table that moves leaves no room for what -v tells.

    Args:
        earlier: what each step took when it last ran.
    """
    from builder import progress  # noqa: PLC0415

    return progress.choose(talk(), os.environ, earlier, plain=plain or LOG.isEnabledFor(logging.DEBUG))


def images(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """For the shell: images that begin so."""
    with contextlib.suppress(OSError):  # the command itself will say what is wrong, here and below
        return [name for name in known_images() if name.startswith(begun)]
    return []


def bases(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """For the shell: bases with facts that begin so."""
    from builder import facts  # noqa: PLC0415

    return sorted(path.stem for path in (ROOT / facts.FOLDER).glob(f"{glob.escape(begun)}*.yaml"))


def targets(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """For the shell: GPU targets of the image that was named; of every image where none was."""
    from builder import manifest as manifests  # noqa: PLC0415

    named = context.params.get("name")
    found: dict[str, None] = {}
    known = images(context, parameter, "")
    for image in [named] if named in known else known:
        with contextlib.suppress(BuilderError, OSError):
            found |= dict.fromkeys(manifests.load(ROOT / "images" / f"{image}.yaml").gpu_targets)
    return [target for target in found if target.startswith(begun)]


def tags(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """For the shell: tags that this checkout has built, as their reports tell; no engine is asked."""
    built = sorted(f"vime:{path.parent.name}" for path in (ROOT / "build").glob("*/report.json"))
    return [tag for tag in built if tag.startswith(begun)]


def sides(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """For the shell: what `diff` compares."""
    return [*images(context, parameter, begun), *tags(context, parameter, begun)]


def engine() -> Engine:
    """The container engine, without what commands that were killed have left there.

    Raises:
        EngineError: where there is none that can be used.
    """
    from builder.engine import Engine  # noqa: PLC0415 - the docker SDK is dear to import

    found = Engine(owner="vime-images")
    # Behind the engine: who may not talk to one is told that, and nothing of what is imported for it.
    from builder import cleaning  # noqa: PLC0415

    for name in cleaning.after_killed(found):
        say(f"removed container {name}: its process was killed")
    return found


def epoch() -> int | None:
    """The time that what is built shall bear, as reproducible builds are told it; None where nobody says.

    Raises:
        UsageError: where it is no time.
    """
    text = os.environ.get(EPOCH, "")
    if text and not re.fullmatch("[0-9]{1,11}", text):
        hint = "git log -1 --format=%ct prints such a number"
        raise UsageError(Problem(f"{EPOCH} is {text!r}, not seconds since 1970", hint=hint))
    return int(text) if text else None


def reference(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """An image or a registry as it was named, where such a name can be.

    Raises:
        UsageError: where it can be none; no engine is asked for that.
    """
    if text is not None and not re.fullmatch(r"[\w.:/@-]+", text, re.ASCII):
        hint = "as vime:rocm7.14-gfx942; the engine's own are listed by: docker image ls"
        raise UsageError(Problem(f"{text!r} can name no image", hint=hint))
    return text


def pairs(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Values by name, of `NAME=VALUE` as an option takes it.

    Raises:
        UsageError: where one is no such pair, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(Problem(f"{option} wants NAME=VALUE, not {text!r}", hint=f"as in: {example}"))
        if name in found:
            raise UsageError(Problem(f"{option} gives {name} twice: {found[name]!r} and {value!r}", hint="keep one"))
        found[name] = value
    return found


def print_report(report: Report, *, as_json: bool) -> None:
    """Print a report, whatever it says."""
    click.echo(json.dumps(json.loads(report.json())) if as_json else report.table())


def show(report: Report, *, as_json: bool = False, strict: bool = False) -> None:
    """Print a report.

    Raises:
        VerificationError: where not all checks have passed.
    """
    print_report(report, as_json=as_json)
    if report.tag and not as_json:
        click.echo(f"\n{report.tag}  {report.image_id}")
        if report.fixed_tag:
            click.echo(report.fixed_tag)
    hint = "each says above what to change; docs/checks.md has every check"
    assert_passed(report, "no tag given", hint, strict=strict)


def assert_passed(report: Report, so: str, hint: str, *, strict: bool) -> None:
    """Refuse a report that has not passed; with `strict`, also one of which a check could not run.

    Args:
        so: what follows from that, in half a sentence.

    Raises:
        VerificationError
    """
    if report.passed_strictly if strict else report.passed:
        return
    failed, untried, every = report.count("failed"), report.count("could not run"), len(report.checks)
    what = f"{failed} of {every} checks failed" if failed else f"{untried} of {every} checks could not run"
    if report.passed:
        what, hint = f"{what}, and --strict is given", "the reasons are above; without --strict, they keep nothing back"
    raise VerificationError(Problem(f"{what}: {so}", hint=hint))
