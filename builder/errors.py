"""Every expected failure: what is wrong, where, what to do; and the exit code of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from builder.told import plain

if TYPE_CHECKING:
    from pathlib import Path


class Location(NamedTuple):
    """A place in a text file; lines and columns count from 1."""

    path: Path
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class Problem(NamedTuple):
    """One thing to fix, phrased for the person who has to fix it."""

    message: str
    where: Location | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return plain(f"{place}error: {self.message}{hint}")


STOPPED = 128  # a shell's exit code for a program that a signal has ended: this and the signal
OUR_FAULT = 70  # sysexits.h: an internal software error


class BuilderError(Exception):
    """Base of all expected failures: shown as text, never as a traceback."""

    exit_code = 1
    remedy = "python -m builder doctor"  # where no problem has a hint of its own

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class UsageError(BuilderError):
    """The command line asks for something that is not there."""

    exit_code = 2
    remedy = "python -m builder --help lists the commands; each has a --help with an example"


class ManifestError(BuilderError):
    """A manifest or a base's facts cannot be used as written."""

    exit_code = 3
    remedy = "docs/manifest.md has every key; then: python -m builder check"


class RenderError(BuilderError):
    """A template, or what it made of a manifest, breaks a rule of the generated file."""

    exit_code = 4
    remedy = "change what that line names, then: python -m builder render"


class StaleError(BuilderError):
    """A generated file is not what its manifest renders to, or a lock is of another manifest."""

    exit_code = 5
    remedy = "python -m builder render"


class BusyError(BuilderError):
    """Another process of this checkout is at it."""

    exit_code = 6
    remedy = "wait for it, or end it"


class UnwritableError(BuilderError):
    """A file or a folder cannot be written, or not be read: permissions, a full or a read-only disk."""

    exit_code = 43
    remedy = "it takes a folder that you may write to, and room on its disk; python -m builder check writes nothing"


class PreflightError(BuilderError):
    """The pins do not hold."""

    exit_code = 7
    remedy = "change what failed above; docs/bump.md has cases; then: make preflight"


class DriftError(BuilderError):
    """A tag is no longer at its pin."""

    exit_code = 8
    remedy = "see what the tag has become before it is pinned: docs/bump.md"


class DriftUnaskedError(BuilderError):
    """No tag is known to have left its pin, and not every one could be asked for."""

    exit_code = 44


class MachineError(BuilderError):
    """What a build stands on has a problem: engine, registry, disk, memory, caches, GPUs, or git is not there."""

    exit_code = 9
    remedy = "mend what has a problem above, then: python -m builder doctor"


class EngineError(BuilderError):
    """The container engine failed or went away."""

    exit_code = 10


class EngineAbsentError(EngineError):
    """No container engine answers."""

    exit_code = 11


class EnginePermissionError(EngineError):
    """An engine is there, but this user may not talk to it."""

    exit_code = 12


class EngineTooOldError(EngineError):
    """The engine answers, but lacks what the generated file needs."""

    exit_code = 13


class EngineGoneError(EngineError):
    """The engine went away while it was at work."""

    exit_code = 23


class TimeLimitError(EngineError):
    """A build or a verification took longer than it was given."""

    exit_code = 24


class BaseImageError(EngineError):
    """The base image cannot be had."""

    exit_code = 14


class BaseDigestError(BaseImageError):
    """Its registry has the base's tag, and not the digest."""

    exit_code = 15


class BaseUnauthorisedError(BaseImageError):
    """Its registry does not give the base to this user."""

    exit_code = 16


class RegistryError(BaseImageError):
    """The base's registry was not reached, or broke off."""

    exit_code = 17


class CredentialStoreError(BaseImageError):
    """The logins of this user cannot be read, or the program that keeps them does not answer."""

    exit_code = 18


class BaseFactsError(BaseImageError):
    """The base is not what its facts say, or cannot be read."""

    exit_code = 25


class PullDiskFullError(BaseImageError):
    """The engine has no room for the base."""

    exit_code = 19


class BuildFailedError(BuilderError):
    """A step of the Dockerfile failed; where it is known how, `failure.KINDS` has an exit code for that.

    Args:
        step: its name, empty where no step is to blame.
        status: the exit code of its script, where it had one.
        log: its lines, as far as BuildKit has passed them on.
    """

    exit_code = 20
    remedy = "docs/debugging.md has the ways into a step that failed"

    def __init__(
        self, *problems: Problem, step: str = "", status: int | None = None, log: tuple[str, ...] = ()
    ) -> None:
        super().__init__(*problems)
        self.step = step
        self.status = status
        self.log = log


class VerificationError(BuilderError):
    """The image was built, and is not what its manifest promises."""

    exit_code = 21
    remedy = "docs/checks.md says of each check what to change when it fails"


class ImagesError(BuilderError):
    """Of several images, not all were built and verified."""

    exit_code = 26
    remedy = "build one that failed by itself: python -m builder image --help"


class UnprovedError(BuilderError):
    """The image has not passed its checks, as far as this checkout knows."""

    exit_code = 27
    remedy = "python -m builder verify --help"


class ForgedRecordError(BuilderError):
    """What an image records or answers about itself is not what this tool writes into one."""

    exit_code = 45
    remedy = "build the image anew: python -m builder image --help"


class PushRefusedError(EngineError):
    """The registry does not take the image: login, certificate, or a rule of its own."""

    exit_code = 28


class PushBrokenError(EngineError):
    """The registry for the image was not reached, or broke off, at every attempt."""

    exit_code = 29


class StandInError(BuilderError):
    """The stand-in base for a rehearsal could not be made."""

    exit_code = 22
    remedy = "python -m builder rehearse --help has --stand-in-from, for a root made elsewhere"
