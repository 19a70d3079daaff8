"""A report as a page: one HTML file, opened from disk, with what is known of the image beside its checks."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pydantic
from packaging.utils import canonicalize_name

from builder import side
from builder.diff import Diff, diff
from builder.errors import BuilderError
from builder.files import write_together
from builder.project import kept
from builder.report import FAILED, OUTCOMES, PASSED
from builder.side import Side
from builder.units import clock, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from builder.engine import Engine
    from builder.report import Report, Step
    from builder.trace import Event

TEMPLATE = Path(__file__).with_name("page.html.j2")
LOG_LINES = 2000  # of a step, the last; more makes a page that no browser likes
FEW = 0.005  # the part of a bar's whole width that is still seen


class Logs:
    """What each step of a build has written, on its way to whoever watches."""

    def __init__(self, watch: Callable[[Event], None]) -> None:
        self._watch = watch
        self.lines: dict[str, list[str]] = {}

    def __call__(self, event: Event) -> None:
        if event.state == "line":
            self.lines.setdefault(event.step, []).append(event.text)
        self._watch(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The last lines of a step, how many stand before them, and whether they are of this build."""

    text: str
    left_out: int
    earlier: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A step on the time line; places and widths are percent."""

    step: Step
    left: float
    width: float
    log: Log | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    name: str
    version: str
    flavour: str
    sealed: str | None


def write(root: Path, tag: str, report: Report, contents: Side, lines: Mapping[str, list[str]]) -> Path:
    """Write the page of a report, and keep what the next one is compared with; the page's path.

    Args:
        tag: names the folder; the image may have failed to get it.
        lines: of the steps that ran.
    """
    folder = kept(root, tag)
    now = replace(contents, checks={check.name: check.outcome for check in report.checks})
    before = _read(folder / "contents.json") if report.image_id else None
    earlier = _read(folder / "logs.json") or {}
    known = {step.name: lines.get(step.name, earlier.get(step.name)) for step in report.steps}
    logs = {name: found for name, found in known.items() if found}
    written = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    text = html(report, now, _difference(before, now), written, _logs(logs, set(lines)))
    files = {"report.html": text}
    if report.image_id:  # what is built next is compared with the last that there was
        files["contents.json"] = json.dumps({"written": written, "side": asdict(now)})
    if report.steps:
        files["logs.json"] = json.dumps(logs)
    write_together({folder / name: content.encode("utf-8", "replace") for name, content in files.items()})
    return folder / "report.html"


def html(report: Report, contents: Side, changed: Diff | None, written: str, logs: Mapping[str, Log]) -> str:
    """The page: the same bytes for the same values, and none of them as markup."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"clock": clock, "size": size, "lines": str.splitlines}
    names = {
        "report": report,
        "outcomes": [(outcome, report.count(outcome)) for outcome in OUTCOMES],
        "verdict": _verdict(report),
        "open": [check for check in report.sorted_checks if check.outcome != PASSED],
        "closed": [check for check in report.checks if check.outcome == PASSED],
        "FAILED": FAILED,
        "bars": list(bars(report, logs)),
        "took": _took(report),
        "contents": contents,
        "layers": _layers(contents),
        "pins": [(key, value, link(key, value, contents.pins, report.pins)) for key, value in contents.pins.items()],
        "distributions": list(_distributions(contents)),
        "changed": changed,
        "written": written,
    }
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(names)


def _verdict(report: Report) -> str:
    untried = report.count("could not run")
    if not report.image_id:
        return "Build failed"
    if report.verdict == FAILED:
        return "Failed: the image has no tag from this" if report.tag is None else "Failed"
    if not report.passed:
        return "Not proved: no check could run"
    return f"Passed, but {untried} could not run" if untried else "Passed"


def bars(report: Report, logs: Mapping[str, Log]) -> Iterator[Bar]:
    """The steps where they stood in the build; one whose begin is unknown, or that was cached, has no width."""
    whole = _took(report) or 1.0
    for step in report.steps:
        shown = not step.cached and step.began is not None
        left = 100 * (step.began or 0.0) / whole if shown else 0.0
        width = max(100 * step.seconds / whole, 100 * FEW) if shown else 0.0
        yield Bar(step=step, left=min(left, 100 - width), width=width, log=logs.get(step.name))


def _took(report: Report) -> float:
    """From the first step's begin to the last one's end."""
    ran = [step for step in report.steps if step.began is not None and not step.cached]
    return max((step.began + step.seconds for step in ran if step.began is not None), default=0.0)


def _logs(lines: Mapping[str, list[str]], ran: set[str]) -> dict[str, Log]:
    return {
        name: Log(text="\n".join(found[-LOG_LINES:]), left_out=max(0, len(found) - LOG_LINES), earlier=name not in ran)
        for name, found in lines.items()
    }


def _layers(contents: Side) -> list[tuple[str, int, float]]:
    """Each with its bytes, and percent of the largest; the largest first."""
    found = sorted((contents.layers or {}).items(), key=lambda layer: -layer[1])
    return [(name, bytes_, 100 * bytes_ / found[0][1]) for name, bytes_ in found]


def _distributions(contents: Side) -> Iterator[Distribution]:
    sealed = {canonicalize_name(name): step for name, step in (contents.sealed or {}).items()}
    found = (contents.distributions or {}).items()
    for name, version in sorted(found, key=lambda each: (canonicalize_name(each[0]) not in sealed, each[0].lower())):
        flavour = contents.flavours.get(name, "")
        yield Distribution(name=name, version=version, flavour=flavour, sealed=sealed.get(canonicalize_name(name)))


def link(key: str, value: str, pins: Mapping[str, str], whose: str) -> str | None:
    """Where a pin can be looked at; None where that is not known, as of the commits of a rehearsal."""
    source, _, what = key.rpartition(".")
    address = value if what in {"repository", "address"} else pins.get(f"{source}.repository", "")
    if not address.startswith("https://"):
        return None
    github = re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+?(?:\.git)?/?", address)
    if what in {"repository", "address"}:
        return address
    if whose != "as manifest" or not github or not re.fullmatch(r"[\w./+-]+", value):
        return None
    page = address.rstrip("/").removesuffix(".git")
    return {"commit": f"{page}/commit/{value}", "tag": f"{page}/releases/tag/{value}"}.get(what)


def contents_of(engine: Engine, report: Report) -> Side:
    """What the report's image has in it; unknown, with the reason, where it does not tell."""
    why = "no image was built"
    try:
        if report.image_id:
            return side.of_image(engine, report.image_id)
    except BuilderError as error:
        why = error.problems[0].message
    return Side(
        title=report.image_id,
        pins={},
        env={},
        distributions=None,
        layers=None,
        checks=None,
        unknown=dict.fromkeys(("pins", "distributions", "env", "layers"), why),
    )


def _difference(before: Mapping[str, Any] | None, now: Side) -> Diff | None:
    """What changed against the page before; None where there is none that can be read."""
    try:
        found = pydantic.TypeAdapter(Side).validate_python((before or {})["side"])
        return diff(replace(found, title=str((before or {})["written"])), replace(now, title="now"))
    except (LookupError, TypeError, ValueError):
        return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
