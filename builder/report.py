"""What a build and its verification came to: one value, as JSON for programs and as text for people."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    cached: bool
    seconds: float
    clipped: bool = False  # BuildKit held a part of its log back


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One image: what went into it, how it was built, what its checks found."""

    image: str
    image_id: str
    tag: str | None  # None until every check has passed
    gpu_targets: tuple[str, ...]
    pins: str  # "as manifest" or "overridden"
    arguments: Mapping[str, str]
    checks: tuple[Check, ...]
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0

    def count(self, outcome: Outcome) -> int:
        return sum(check.outcome == outcome for check in self.checks)

    @property
    def passed(self) -> bool:
        """Nothing failed, and something ran: an empty list proves nothing."""
        return bool(self.count(PASSED)) and not self.count(FAILED)

    def with_tag(self, tag: str) -> Report:
        return replace(self, tag=tag)

    @property
    def headline(self) -> str:
        counts = ", ".join(f"{self.count(outcome)} {outcome}" for outcome in OUTCOMES)
        return f"{self.image} for {', '.join(self.gpu_targets)}: {counts} (pins: {self.pins})"

    def json(self) -> str:
        counts = {outcome.replace(" ", "_"): self.count(outcome) for outcome in OUTCOMES}
        return json.dumps({"schema": SCHEMA, "counts": counts, **asdict(self)}, indent=2) + "\n"

    def table(self) -> str:
        """The checks as aligned text, failures first; the first line counts all three outcomes."""
        return "\n".join([self.headline, "", *self._rows()])

    def _rows(self) -> Iterator[str]:
        order = {FAILED: 0, COULD_NOT_RUN: 1, PASSED: 2}
        for check in sorted(self.checks, key=lambda check: order[check.outcome]):
            yield f"  {_MARK[check.outcome]:<14} {check.name}  ({check.seconds:.1f} s)"
            if check.outcome != PASSED:
                yield from (f"  {'':<14}   {line}" for line in check.detail.splitlines())
            if check.outcome == FAILED and check.hint:
                yield f"  {'':<14}   hint: {check.hint}"


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` whole: a reader sees the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
