"""Explain a failed step: what kind of failure it is, which key of the manifest is behind it, what to do next."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.entries import install_step
from builder.errors import BuildFailedError, Location, Problem, VerificationError
from builder.lists import CACHES, cache_mount
from builder.trace import CLIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.manifest import Manifest

ASK_INDEX = "python3 -m pip index versions pip"
KEYS_SHOWN, CHECKS_SHOWN = 5, 3
_TALKED_LAST = 200  # lines of the log in which keys of the manifest are looked for
_NETWORK = (
    r"could(?:n't| not) resolve|name resolution|name or service not known|timed out|connection (?:refused|reset)"
    r"|(?:network is|host is|network) unreachable|no route to host|tls (?:handshake|connect)|certificate verify failed"
    r"|ssl certificate problem|ssl(?:error|_error|: )|gnutls_|early eof|rpc failed|proxyerror|cannot connect to proxy"
)
_MEMORY = (
    r"^(?:.*\bline \d+: +\d+ )?Killed\b|killed signal terminated|unable to execute command: killed"
    r"|FAILED: \[code=(?:9|137)\]|signal(?:ed|:)? 9\b|SIGKILL|bad_alloc|virtual memory exhausted"
    r"|LLVM ERROR: out of memory|cannot allocate memory|^MemoryError"
)
_FIRST_ERROR = (  # in this order; what a recipe itself has found first is first
    r"^first errors: (?P<error>.+)$",
    r"^(?P<error>\S.*:\d+(?::\d+)?: (?:fatal )?error: .+)$",
    r"^(?P<error>CMake Error.+|.*\bld(?:\.lld)?: error: .+|.*undefined reference to .+)$",
    r"^(?P<error>.*\berror: .+)$",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of failure: the command's exit code, how its log reads, and what helps."""

    name: str
    exit_code: int
    pattern: re.Pattern[str]
    remedy: str


def _kind(name: str, exit_code: int, pattern: str, remedy: str) -> Kind:
    return Kind(name, exit_code, re.compile(pattern, re.IGNORECASE | re.MULTILINE), remedy)


_OFFLINE = "try it on the engine's host: {ask}; behind a proxy, its engine needs HTTPS_PROXY"
# In this order: a full disk looks like a compile error, a killed compiler like one too.
KINDS = (
    _kind(
        "disk full",
        30,
        r"no space left on device|disk quota exceeded",
        "see where it went: docker system df; free it and keep the compiler's cache: "
        "docker builder prune --all --filter type=regular",
    ),
    _kind(
        "base not found",
        42,
        r"failed to resolve source metadata",
        "see whether the engine can have it: docker pull {base}",
    ),
    _kind(
        "out of memory",
        31,
        rf"exit code:? 137(?!: context canceled)|{_MEMORY}",
        "a compiler takes up to 4 GiB a job, and jobs are counted from the memory that is free when the step starts: "
        "end what else runs there (docker stats --no-stream), then build again",
    ),
    _kind(
        "verification",
        VerificationError.exit_code,
        r"^\s*checks: \d+ passed, [1-9]\d* failed|verification did not run",
        "each failed check says what to change",
    ),
    _kind(
        "seal broken",
        33,
        r"^\s*seal: \S+ (?!\d+ distributions)",
        "the step replaced what the base or an earlier step brought: see the lines above",
    ),
    _kind("network", 34, rf"pip (?:finds no plan|did not install)[\s\S]*(?:{_NETWORK})", _OFFLINE),
    _kind(
        "pip finds no plan",
        35,
        r"pip finds no plan",
        "take the requirement out of the set, or override it with a reason; then: python -m builder check {image}",
    ),
    _kind(
        "refused by the judge",
        36,
        r"^\s*judge: \S+ (?!\d+ distributions)",
        "the message names the package, who asked for it, and the key to change; then: python -m builder check {image}",
    ),
    _kind(
        "patch does not apply",
        37,
        r"does not apply|^error: patch failed|^Hunk #\d+ FAILED|corrupt patch",
        "fit the patch to the pinned commit, or drop it if upstream has it",
    ),
    _kind(
        "commit does not match",
        38,
        r"is [0-9a-f]{40}, not [0-9a-f]{40}",
        "pin the commit that the tag has, or another tag: {ask}",
    ),
    _kind(
        "source cannot be fetched",
        39,
        r"couldn't find remote ref|not our ref|repository .*not found|could not read username",
        "see which tags and commits there are: {ask}",
    ),
    _kind("network", 34, _NETWORK, _OFFLINE),
    _kind(
        "source cannot be fetched",
        39,
        r"cannot fetch ",
        "see what git says: a wrong address, tag or commit; {ask}",
    ),
    _kind(
        "compile error",
        40,
        r"(?:^|\s)(?:fatal )?error: |^CMake Error|^ninja: build stopped|undefined reference to",
        "the first error counts; the later ones follow from it",
    ),
    _kind(
        "Dockerfile syntax",
        41,
        r"dockerfile parse error|unterminated heredoc|^error: (?:unknown instruction|unsupported mount type)"
        r"|lint violation",
        "a template is wrong, or the file was edited by hand: python -m builder render {image}",
    ),
)


def explain(error: BuildFailedError, manifest: Manifest, base: str = "") -> BuildFailedError:
    """The same failure with its kind, the manifest's line behind it, and what to do next.

    Args:
        base: the reference of the image that it was built on; the manifest's, where empty.
    """
    told = re.sub("^    ", "", "\n".join(problem.message for problem in error.problems), flags=re.MULTILINE)
    log = "\n".join([*error.log, told])
    kind = next((kind for kind in KINDS if kind.pattern.search(log)), None)
    named = list(dict.fromkeys(manifest.named_in("\n".join([told, *error.log[-_TALKED_LAST:]]))))
    places = [f"{'.'.join(map(str, key))}: {manifest.where(*key)}" for key in named[:KEYS_SHOWN] if len(named) > 1]
    what = f"{error.step or 'the build'}: {kind.name if kind else 'failed'}"
    names = {"image": manifest.name, "base": base or manifest.base.reference, "ask": _ask(error.step, manifest)}
    hints = [kind.remedy.format(**names)] if kind else []
    if "compiling for " in log and error.step.startswith("BUILD_"):
        hints.append(f"its whole log, into build/logs: {whole_log(names['base'])}")
    if error.step == "VERIFY" or made_by(error.step, manifest):
        rehearsed = " --rehearsal" if names["base"] != manifest.base.reference else ""
        hints.append(f"a shell before the step: python -m builder debug {manifest.name} {error.step}{rehearsed}")
    summary = Problem(
        "\n    ".join(["; ".join([what, *_notes(error, kind, log)]), *places]),
        _in_dockerfile(error, manifest) or _in_manifest(error, manifest, named),
        "\n    hint: ".join(hints) or None,
    )
    explained = BuildFailedError(*error.problems, summary, step=error.step, status=error.status, log=error.log)
    explained.exit_code = kind.exit_code if kind else error.exit_code
    return explained


def _notes(error: BuildFailedError, kind: Kind | None, log: str) -> Iterator[str]:
    if CLIPPED in log:
        yield f"the log of {error.step} was clipped by the engine"
    if kind and kind.name == "compile error":
        found = next(filter(None, (re.search(pattern, log, re.MULTILINE) for pattern in _FIRST_ERROR)), None)
        if found:
            yield f"first error: {found['error'].strip()}"
    if kind and kind.name == "verification":
        failed = dict.fromkeys(re.findall(r"^failed {4,}(\S.*)$", log, re.MULTILINE))
        yield from (f"failed: {check}" for check in list(failed)[:CHECKS_SHOWN])
    jobs = re.search(r"with (\d+) jobs", log)
    if kind and kind.name == "out of memory" and jobs:
        yield f"{jobs[1]} jobs ran at once"


def _ask(step: str, manifest: Manifest) -> str:
    """A command that asks whom the step asks."""
    match made_by(step, manifest):
        case ("sources", str(name)):
            return f"git ls-remote {manifest.sources[name].repository}"
        case ("prebuilt", str(name)):
            return f"curl --head --location {manifest.prebuilt[name].address}"
        case _:
            return ASK_INDEX


def _in_dockerfile(error: BuildFailedError, manifest: Manifest) -> Location | None:
    found = re.search(r"dockerfile parse error on line (\d+)", str(error.problems[0]))
    return Location(Path(manifest.dockerfile), int(found[1])) if found and not error.step else None


def _in_manifest(
    error: BuildFailedError, manifest: Manifest, named: Sequence[tuple[str | int, ...]]
) -> Location | None:
    """Where in the manifest to look: the key that the log names first, else the one that made the step."""
    path = named[0] if named else made_by(error.step, manifest)
    return manifest.where(*path) if path else None


def whole_log(base: str) -> str:
    """A command that copies the logs of the last compile steps out of the engine, whole.

    They lie in a cache mount, which outlives a step that fails. ARG makes the copy run each time; `--no-cache` would
    empty the mount.
    """
    text = (
        f"FROM {base} AS logs\\nARG NOW\\n"
        f"RUN --mount={cache_mount('logs')} cp -R {CACHES['logs']} /logs\\n"
        "FROM scratch\\nCOPY --from=logs /logs /\\n"
    )
    return f"printf '{text}' | docker build --quiet --build-arg NOW=$(date +%s) --output build/logs -"


def made_by(step: str, manifest: Manifest) -> tuple[str | int, ...] | None:
    """The key of the manifest behind a step of its Dockerfile."""
    fixed: dict[str, tuple[str | int, ...]] = {
        "BUILD_TOOLS": ("build_tools",),
        "GPU_TARGETS": ("gpu_targets",),
        "LINKS": ("links",),
        "REMOVE": ("removed",),
        "SEAL_BASE": ("sealed",),
    }
    fixed |= {install_step(name): ("prebuilt", name) for name in manifest.prebuilt}
    for name, source in manifest.sources.items():
        if step == source.step("REQUIREMENTS"):
            return ("sources", name, "requirements")
        if step in {source.step(kind) for kind in ("BUILD", "FETCH", "INSTALL")}:
            return ("sources", name)
    return fixed.get(step)
