"""Explain a failed step: what kind of failure it is, which key of the manifest is behind it, what to do next."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import BuildFailedError, Problem

if TYPE_CHECKING:
    from builder.errors import Location
    from builder.manifest import Manifest

CLIPPED = "[output clipped, log limit"
# Keys as the programs in the image name them.
_KEY = re.compile(
    r"\b(?P<key>(?:sources|forbidden|constraints|overrides|removed|sealed|env|dropped_env|forbidden_env|pip_check)"
    r"(?:\.[\w*-]+)+|removed|sealed)"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of failure: how its log reads, and what helps."""

    name: str
    pattern: re.Pattern[str]
    remedy: str


def _kind(name: str, pattern: str, remedy: str) -> Kind:
    return Kind(name, re.compile(pattern, re.IGNORECASE | re.MULTILINE), remedy)


# In this order: a full disk looks like a compile error, a killed compiler like one too.
KINDS = (
    _kind("disk full", r"no space left on device", "free space where the engine keeps its data: docker system df"),
    _kind(
        "out of memory",
        r"exit code:? 137|^\s*Killed$|signal (terminated|killed)|terminated by signal 9|bad_alloc|out of memory",
        "give the engine more memory, or other builds less: a compiler takes up to 4 GiB a job",
    ),
    _kind(
        "verification",
        r"^\s*checks: \d+ passed, [1-9]\d* failed|verification did not run",
        "each failed check says what to change",
    ),
    _kind(
        "seal broken",
        r"^\s*seal: \S+ (?!\d+ distributions)",
        "the step replaced what the base or an earlier step brought: see the lines above",
    ),
    _kind(
        "pip finds no plan", r"pip finds no plan", "take the requirement out of the set, or override it with a reason"
    ),
    _kind(
        "refused by the judge",
        r"^\s*judge: \S+ (?!\d+ distributions)",
        "the message names the package, who asked for it, and the key to change",
    ),
    _kind(
        "patch does not apply", r"does not apply", "fit the patch to the pinned commit, or drop it if upstream has it"
    ),
    _kind(
        "network",
        r"could not resolve|name resolution|timed out|connection (refused|reset)|network is unreachable"
        r"|certificate verify failed|ssl",
        "check proxy, name server and certificates of the engine's network",
    ),
    _kind(
        "commit does not match", r"is [0-9a-f]{40}, not [0-9a-f]{40}", "pin the commit that the tag has, or another tag"
    ),
    _kind("source cannot be fetched", r"cannot fetch ", "see what git says: a wrong address, tag or commit"),
    _kind("compile error", r"(^|\s)(fatal )?error:", "the first error counts; the later ones follow from it"),
)


def explain(error: BuildFailedError, manifest: Manifest) -> BuildFailedError:
    """The same failure with its kind, the manifest's line behind it, and what to do next."""
    log = "\n".join(problem.message for problem in error.problems)
    kind = next((kind for kind in KINDS if kind.pattern.search(log)), None)
    notes = [f"the log of {error.step} was clipped by the engine"] if CLIPPED in log else []
    first = re.search(r"^\s*(first errors: )?(.*\berror:.*)$", log, re.MULTILINE)
    if kind and kind.name == "compile error" and first:
        notes.append(f"first error: {first[2].strip()}")
    jobs = re.search(r"with (\d+) jobs", log)
    if kind and kind.name == "out of memory" and jobs:
        notes.append(f"{jobs[1]} jobs ran at once")
    what = f"{error.step or 'the build'}: {kind.name if kind else 'failed'}"
    summary = Problem("; ".join([what, *notes]), _place(error.step, log, manifest), kind.remedy if kind else None)
    return BuildFailedError(*error.problems, summary, step=error.step)


def _place(step: str, log: str, manifest: Manifest) -> Location | None:
    """Where in the manifest to look: the key that the log names, else the one that made the step."""
    named = (manifest.key_path(found["key"]) for found in _KEY.finditer(log))
    path = next(filter(None, named), None) or made_by(step, manifest)
    return manifest.where(*path) if path else None


def made_by(step: str, manifest: Manifest) -> tuple[str | int, ...] | None:
    """The key of the manifest behind a step of its Dockerfile."""
    fixed: dict[str, tuple[str | int, ...]] = {
        "BUILD_TOOLS": ("build_tools",),
        "GPU_TARGETS": ("gpu_targets",),
        "LINKS": ("links",),
        "REMOVE": ("removed",),
        "SEAL_BASE": ("sealed",),
    }
    for name, source in manifest.sources.items():
        if step == source.step("REQUIREMENTS"):
            return ("sources", name, "requirements")
        if step in {source.step(kind) for kind in ("BUILD", "FETCH", "INSTALL")}:
            return ("sources", name)
    return fixed.get(step)
