"""The project around a manifest: where its files are, and whether they belong together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from builder import facts as bases
from builder import manifest as manifests
from builder import schema
from builder.errors import Problem, StaleError, UsageError

if TYPE_CHECKING:
    from builder.facts import Facts
    from builder.manifest import Manifest

ROOT = Path(__file__).parent.parent


def known_images() -> list[str]:
    return sorted(path.stem for path in (ROOT / "images").glob("*.yaml"))


def load(name: str) -> tuple[Manifest, Facts]:
    """The manifest of an image by its name, with the facts of its base."""
    known = known_images()
    if name not in known:
        hint = schema.did_you_mean(name, known) or f"known are {', '.join(known) or 'none'}"
        raise UsageError(Problem(f"no image {name!r}", hint=hint))
    manifest = manifests.load(shown(ROOT / "images" / f"{name}.yaml"))
    return manifest, bases.of(manifest, shown(ROOT))


def shown(path: Path) -> Path:
    """A path as it is shortest to read from where the user stands."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def assert_fresh(manifest: Manifest, text: str) -> None:
    """Compare the committed Dockerfile with what the manifest renders to.

    Raises:
        StaleError: where they differ.
    """
    path = ROOT / manifest.dockerfile
    found = path.read_bytes() if path.is_file() else b""
    if found != text.encode():
        state = "stale" if found else "missing"
        hint = f"python -m builder render {manifest.name}"
        raise StaleError(Problem(f"{manifest.dockerfile} is {state}", hint=hint))
