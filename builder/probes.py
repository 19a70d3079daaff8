"""Questions about an image's pins: the shape of an answer, asked side by side, and the pinned trees they look into."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from builder import git
from builder.git import GitError
from builder.report import COULD_NOT_RUN, FAILED, PASSED, Check, Outcome, Report
from builder.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from builder.entries import Source
    from builder.manifest import Manifest


class Untried(Exception):  # noqa: N818 (an outcome, not an error)
    """A probe could not run."""


class Fault(Exception):  # noqa: N818 (an outcome, not an error)
    """A probe has found one.

    Args:
        detail: what it is.
        hint: what to change.
    """

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Probe:
    """One question; its answer is what passed, or an exception."""

    name: str
    kind: str
    ask: Callable[[], tuple[str, tuple[str, ...]]]  # the detail, and notes


@dataclass
class Trees:
    """The pinned trees of a manifest's sources, each had once, when somebody first asks."""

    manifest: Manifest
    cache: Path
    scratch: Path
    offline: bool
    known: dict[str, Path] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._locks = {name: threading.Lock() for name in self.manifest.sources}

    def of(self, source: Source) -> Path:
        """A tree that nobody changes.

        Raises:
            Untried: where the commit is not known, or the host does not answer.
            Fault: where the repository does not have it.
        """
        with self._locks[source.name]:
            if source.name not in self.known:
                self.known[source.name] = self._had(source)
        return self.known[source.name]

    def part(self, source: Source, paths: Iterable[str]) -> Path:
        """A tree of one's own, of those paths that the pinned tree has as files."""
        whole = self.of(source)
        self.scratch.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix=f"{source.name}-", dir=self.scratch))
        for path in {path for path in paths if (whole / path).is_file() and ".." not in path.split("/")}:
            (own / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(whole / path, own / path, follow_symlinks=False)
        return own

    def _had(self, source: Source) -> Path:
        if source.commit == UNKNOWN:
            raise Untried(f"sources.{source.name}.commit is unknown")
        try:
            with git.repository(self.cache, source.repository) as held:
                git.fetch(held, source.repository, source.commit, source.tag, offline=self.offline)
                return git.tree(held, source.commit)
        except GitError as error:
            raise told(source, error) from error


def told(source: Source, error: GitError) -> Untried | Fault:
    """A repository's refusal: what nobody could ask is not what somebody has denied."""
    if error.why == "unreachable" or "--offline" in error.said:
        return Untried(f"{source.repository}: {error}")
    return Fault(f"{source.repository}: {error}", f"sources.{source.name}: {error.hint}")


def answers(probes: Sequence[Probe]) -> tuple[Check, ...]:
    """What each probe came to; they are asked side by side."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        return tuple(pool.map(_answered, probes))


def report(image: str, gpu_targets: Iterable[str], checks: tuple[Check, ...], seconds: float = 0.0) -> Report:
    """What questions came to that are asked before there is an image."""
    return Report(
        image=image,
        image_id="",
        tag=None,
        gpu_targets=tuple(dict.fromkeys(gpu_targets)),
        pins="as manifest",
        arguments={},
        checks=checks,
        seconds=seconds,
    )


def _answered(probe: Probe) -> Check:
    started = time.monotonic()
    outcome: Outcome = PASSED
    detail, hint = "", ""
    notes: tuple[str, ...] = ()
    try:
        detail, notes = probe.ask()
    except Untried as reason:
        outcome, detail = COULD_NOT_RUN, str(reason)
    except Fault as fault:
        outcome, detail, hint = FAILED, str(fault), fault.hint
    seconds = time.monotonic() - started
    return Check(
        name=probe.name, kind=probe.kind, outcome=outcome, detail=detail, hint=hint, seconds=seconds, notes=notes
    )
