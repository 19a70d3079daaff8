"""The proof of an image: the report of its last verification by this checkout, kept by the image's id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import Problem, UnprovedError
from builder.files import write_atomically
from builder.report import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builder.report import Report


def keep(root: Path, report: Report) -> None:
    """Remember what a verification came to, passed or not; an earlier one of the same image is forgotten."""
    write_atomically(_path(root, report.image_id), report.json())


def of(root: Path, image_id: str) -> Report | None:
    """What the last verification of an image came to; None where this checkout has none that can be read."""
    try:
        report = parse(_path(root, image_id).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return report if report.image_id == image_id else None


def passed(root: Path, image_id: str, tag: str) -> Report:
    """The report of an image that has passed.

    Raises:
        UnprovedError: where it was not verified, or not with success.
    """
    report, hint = of(root, image_id), f"python -m builder verify {tag}"
    if report is None:
        raise UnprovedError(Problem(f"{tag} ({image_id[:19]}) was not verified by this checkout", hint=hint))
    if not report.passed:
        raise UnprovedError(Problem(f"{tag} has not passed its checks: {report.headline}", hint=hint))
    return report


def forget(root: Path, is_there: Callable[[str], bool]) -> Iterator[str]:
    """Remove the proofs of images that are gone; the ids of those."""
    for path in sorted((root / "build" / "proofs").glob("*.json")):
        image_id = f"sha256:{path.stem}"
        if not is_there(image_id):
            path.unlink()
            yield image_id


def _path(root: Path, image_id: str) -> Path:
    return root / "build" / "proofs" / f"{image_id.rpartition(':')[2]}.json"
