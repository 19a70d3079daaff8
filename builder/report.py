"""What a build and its verification came to: one value, as JSON and JUnit XML, as a table and as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping  # noqa: TC003 (pydantic reads the annotations)
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from builder.errors import Problem, UsageError
from builder.files import assert_writable
from builder.told import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from builder import trace
    from builder.errors import BuilderError

SCHEMA = 1
Outcome = Literal["passed", "failed", "could not run"]
PASSED: Final = "passed"
FAILED: Final = "failed"
COULD_NOT_RUN: Final = "could not run"
OUTCOMES: tuple[Outcome, ...] = (PASSED, FAILED, COULD_NOT_RUN)
_MARK = {PASSED: "ok", FAILED: "FAILED", COULD_NOT_RUN: "could not run"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    kind: str
    outcome: Outcome
    detail: str
    hint: str
    seconds: float
    notes: tuple[str, ...] = ()  # what passed, and still wants to be seen: waivers, alternatives


def ended_by(error: BuilderError, name: str, kind: str, seconds: float) -> Check:
    """The failed check that stands for all that an error has kept from being tried."""
    detail = "\n".join(f"{problem.where or ''} {problem.message}".strip() for problem in error.problems)
    hints = [problem.hint for problem in error.problems if problem.hint] or [error.remedy]
    return Check(name=name, kind=kind, outcome=FAILED, detail=detail, hint="\n".join(hints), seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    cached: bool
    seconds: float
    clipped: bool = False  # BuildKit held a part of its log back
    began: float | None = None  # seconds after the build's first step; None where that is unknown
    failed: bool = False  # it ended the build, or was ended with it


def steps_of(traced: Sequence[trace.Step]) -> tuple[Step, ...]:
    """A build's steps, as far as the engine has told."""
    first = min((step.started for step in traced if step.started is not None), default=0.0)
    return tuple(
        Step(
            **{key: getattr(step, key) for key in ("name", "cached", "seconds", "clipped")},
            began=None if step.started is None else step.started - first,
            failed=bool(step.error),
        )
        for step in traced
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One image: what went into it, how it was built, what its checks found."""

    image: str
    image_id: str  # empty where no image was built
    tag: str | None  # None until every check has passed
    gpu_targets: tuple[str, ...]
    pins: str  # "as manifest" or "overridden"
    arguments: Mapping[str, str]
    checks: tuple[Check, ...]
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0
    fixed_tag: str | None = None  # beside `tag`, where the pins are the manifest's

    def count(self, outcome: Outcome) -> int:
        return sum(check.outcome == outcome for check in self.checks)

    @property
    def passed(self) -> bool:
        """Nothing failed, and something ran: an empty list proves nothing."""
        return bool(self.count(PASSED)) and not self.count(FAILED)

    @property
    def passed_strictly(self) -> bool:
        """Nothing failed, and nothing was left untried."""
        return self.passed and not self.count(COULD_NOT_RUN)

    @property
    def verdict(self) -> Outcome:
        """Of all checks together; `could not run` where nothing was proved."""
        if self.count(FAILED):
            return FAILED
        return PASSED if self.passed else COULD_NOT_RUN

    def with_tags(self, tag: str, fixed_tag: str | None) -> Report:
        return replace(self, tag=tag, fixed_tag=fixed_tag)

    @property
    def headline(self) -> str:
        counts = ", ".join(f"{self.count(outcome)} {outcome}" for outcome in OUTCOMES)
        return f"{self.image} for {', '.join(self.gpu_targets)}: {counts} (pins: {self.pins})"

    def json(self) -> str:
        """For programs; its shape is `schema/report.schema.json`."""
        counts = {outcome.replace(" ", "_"): self.count(outcome) for outcome in OUTCOMES}
        return json.dumps({"schema": SCHEMA, "counts": counts, **asdict(self)}, indent=2) + "\n"

    def junit(self) -> str:
        """For the test pages of a CI: what could not run is skipped there, with its reason."""
        import junitparser  # noqa: PLC0415 - only here

        suite = junitparser.TestSuite(self.image)
        for name, value in (("headline", self.headline), ("image_id", self.image_id), ("pins", self.pins)):
            suite.add_property(name, value)
        for check in self.checks:
            case = junitparser.TestCase(_printable(check.name), f"{self.image}.{check.kind}", check.seconds)
            detail = _printable(check.detail)
            first = (detail.splitlines() or [""])[0]
            if check.outcome == FAILED:
                case.result = [junitparser.Failure(first, check.kind)]
                case.result[0].text = f"{detail}\nhint: {_printable(check.hint)}"
            elif check.outcome == COULD_NOT_RUN:
                case.result = [junitparser.Skipped(first, check.kind)]
                case.result[0].text = detail
            else:
                case.system_out = "\n".join([detail, *map(_printable, check.notes)])
            suite.add_testcase(case)
        xml = junitparser.JUnitXml(self.image)
        xml.add_testsuite(suite)
        text: bytes = xml.tostring()  # type: ignore[no-untyped-call]
        return text.decode() + "\n"

    def markdown(self) -> str:
        """For a pull request or a job's summary; failures first, what passed folded away."""
        lines = [f"**{cell(self.headline)}**", ""]
        lines += [f"`{self.tag or 'no tag'}` `{self.image_id}`", ""] if self.image_id else []
        open_ = [check for check in self.sorted_checks if check.outcome != PASSED]
        if open_:
            lines += ["| outcome | check | why |", "| --- | --- | --- |"]
            for check in open_:
                hint = f"\nhint: {check.hint}" if check.outcome == FAILED and check.hint else ""
                lines.append(f"| {check.outcome} | {cell(check.name)} | {cell(check.detail + hint)} |")
            lines.append("")
        passed = [
            "<br>".join([f"- {cell(check.name)}", *map(cell, check.notes)])
            for check in self.checks
            if check.outcome == PASSED
        ]
        lines += ["<details>", f"<summary>{len(passed)} passed</summary>", "", *passed, "", "</details>"]
        return "\n".join(lines) + "\n"

    def table(self) -> str:
        """The checks as aligned text, failures first; the first line counts all three outcomes."""
        return plain("\n".join([self.headline, "", *self._rows()]))

    def as_file(self, path: Path) -> str:
        """In the format of a file's ending.

        Raises:
            UsageError: where that is none of `FORMATS`.
        """
        assert_format(path)
        return FORMATS[path.suffix](self)

    @property
    def sorted_checks(self) -> list[Check]:
        """Failures first, then what could not run."""
        order = (FAILED, COULD_NOT_RUN, PASSED)
        return sorted(self.checks, key=lambda check: order.index(check.outcome))

    def _rows(self) -> Iterator[str]:
        for check in self.sorted_checks:
            yield f"  {_MARK[check.outcome]:<14} {check.name}  ({check.seconds:.1f} s)"
            lines = check.notes if check.outcome == PASSED else check.detail.splitlines()
            yield from (f"  {'':<14}   {line}" for line in lines)
            if check.outcome == FAILED and check.hint:
                yield f"  {'':<14}   hint: {check.hint}"


FORMATS: Mapping[str, Callable[[Report], str]] = {
    ".json": Report.json,
    ".md": Report.markdown,
    ".txt": Report.table,
    ".xml": Report.junit,
}


def parse(text: str) -> Report:
    """The report that was written as this JSON.

    Raises:
        ValueError: where it is none.
    """
    import pydantic  # noqa: PLC0415 - only here and below

    return pydantic.TypeAdapter(Report).validate_json(text)


def assert_format(path: Path) -> None:
    """Refuse a file whose ending names no format, or that cannot be written.

    Raises:
        UsageError, UnwritableError
    """
    if path.suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise UsageError(Problem(f"no report has the ending {path.suffix!r}: {str(path)!r}", hint=f"known are {known}"))
    assert_writable(path)


def json_schema() -> dict[str, object]:
    """The shape of a report as JSON, from its own types."""
    import pydantic  # noqa: PLC0415 - only here

    found = pydantic.TypeAdapter(Report).json_schema()
    counts = {outcome.replace(" ", "_"): {"type": "integer", "minimum": 0} for outcome in OUTCOMES}
    found["properties"] = {
        "schema": {"const": SCHEMA},
        "counts": {"type": "object", "properties": counts, "required": list(counts), "additionalProperties": False},
        **found["properties"],
    }
    found["required"] = list(found["properties"])
    found["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _printable(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", text)


def cell(text: str) -> str:
    """As one cell of a table, where nothing in it is Markdown."""
    escaped = re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", plain(text).strip())
    return "<br>".join(escaped.splitlines())
