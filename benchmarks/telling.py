"""What a benchmark has to say, as one JSON object on stdout."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure beside what it may be.

    Attributes:
        value: None where it could not be measured; a note says why.
        at_least: whether `allowed` is the least it may be, not the most.
    """

    what: str
    value: float | None
    allowed: float
    unit: str
    at_least: bool = False


def tell(  # noqa: PLR0913 (each is one part of the object)
    *,
    title: str,
    how: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    targets: Sequence[Target],
    notes: Sequence[str],
) -> None:
    told = {"title": title, "how": how, "columns": columns, "rows": rows}
    json.dump({**told, "targets": [asdict(target) for target in targets], "notes": notes}, sys.stdout, indent=1)
    sys.stdout.write("\n")
