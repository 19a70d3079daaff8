"""The project around a manifest: where its files are, and whether they belong together."""

from __future__ import annotations

import contextlib
import fcntl
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import BusyError, Location, ManifestError, Problem, StaleError, UsageError
from builder.files import writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from builder.facts import Facts
    from builder.manifest import Manifest

ROOT = Path(__file__).parent.parent


def known_images() -> list[str]:
    """The names of all manifests; a folder that cannot be listed is an error, and not one without images."""
    return sorted(path.stem for path in (ROOT / "images").iterdir() if path.suffix == ".yaml")


def load(name: str, overrides: Mapping[str, str] | None = None) -> tuple[Manifest, Facts]:
    """The manifest of an image by its name, with the facts of its base.

    Args:
        overrides: other values for pins, by their keys, such as `vime.commit`; the file stays as it is.
    """
    from builder import facts as bases  # noqa: PLC0415
    from builder import manifest as manifests  # noqa: PLC0415
    from builder.consistency import in_tag  # noqa: PLC0415

    known = assert_known(name)
    manifest = manifests.load(shown(ROOT / "images" / f"{name}.yaml"))
    twins = [other for other in known if other != name and in_tag(other) == in_tag(name)]
    if twins:
        message = f"{name!r} and {twins[0]!r} would have the same tags, {manifest.tag(['...'])}"
        raise ManifestError(Problem(message, Location(manifest.path, 1), hint="rename one of them"))
    if overrides:
        manifest = manifests.overridden(manifest, overrides)
    return manifest, bases.of(manifest, shown(ROOT))


def assert_known(name: str) -> list[str]:
    """The names of all images.

    Raises:
        UsageError: where `name` is none of them.
    """
    from builder import schema  # noqa: PLC0415

    known = known_images()
    if name not in known:
        raise UsageError(Problem(f"no image {name!r}", hint=schema.near_or_known(name, known)))
    return known


def chosen_targets(manifest: Manifest, chosen: Sequence[str]) -> tuple[str, ...]:
    """The GPU targets that were asked for, each once; the manifest's first where none was.

    Raises:
        UsageError: where one is none of the manifest's.
    """
    for target in chosen:
        if target not in manifest.gpu_targets:
            known = ", ".join(manifest.gpu_targets)
            where = manifest.where("gpu_targets")
            raise UsageError(Problem(f"no GPU target {target!r} in this image", where, hint=f"known are {known}"))
    return tuple(dict.fromkeys(chosen)) or manifest.gpu_targets[:1]


def shown(path: Path) -> Path:
    """A path as it is shortest to read from where the user stands."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, FileNotFoundError):  # elsewhere; or where the user stands is gone
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


def kept(root: Path, tag: str) -> Path:
    """The folder of what is remembered of a tag: its report, its timings, who is at it."""
    return root / "build" / (tag.rpartition("/")[2].partition(":")[2] or "latest")


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Be the only one of this checkout's processes that is at work on a tag; the lock goes with its process.

    Raises:
        BusyError: with who is at it already.
        UnwritableError
    """
    path = kept(ROOT, what) / "lock"
    with contextlib.ExitStack() as opened:
        with writing(shown(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context(path.open("a+", encoding="utf-8"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            hint = "wait for it, or end it; what it has built already is in the engine's cache"
            raise BusyError(Problem(f"{what} is being worked on by {holder}", hint=hint)) from None
        file.truncate(0)
        with contextlib.suppress(OSError):  # on a full disk nobody learns who it is; the lock holds all the same
            file.write(f"process {os.getpid()} since {datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC\n")
            file.flush()
        yield
