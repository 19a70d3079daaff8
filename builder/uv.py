"""uv, asked for a plan as the machine's pip would be: its index, its proxy, its certificates; it installs nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from builder import told
from builder.told import without_logins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The C library decides which wheels fit (PEP 600).
GLIBC = {"debian 12": "2_36", "debian 13": "2_41", "ubuntu 22.04": "2_35", "ubuntu 24.04": "2_39"}
TAIL = 12  # lines of uv's own message that are shown
# What the public index says of itself, said of this machine's too: a mirror that says nothing would be asked of every
# page and every wheel again, by the plan of one set after that of another.
AGES = 'cache-control = {api = "max-age=600", files = "max-age=31536000, immutable"}'
# What uv says where it was kept from asking: then a missing distribution means nothing.
UNASKED = r"could not be queried|An index \(.*\) returned a |network was disabled"
# Its plan names who asks, not what for: that is in its log only.
EDGE = re.compile(
    r"^DEBUG Adding transitive dependency for (?P<name>\S+)==(?P<version>\S+): "
    r"(?P<asked>[\w.-]+(?:\[[^]]*\])?)(?:\{[^}]*\})?(?P<range>.*)$",
    re.MULTILINE,
)


class NotAskedError(Exception):
    """The index did not answer: no verdict about the pins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How uv is asked.

    Attributes:
        python: the version that the plan is for, whole.
        platform: its system, by uv's name for it.
        pip: variables as pip reads them; of these, how packages are reached.
        there: what is installed, by canonical name: kept wherever it fits, as pip does.
        house: a folder of wheels that stand in for it.
        scratch: a folder for this alone.
        cache: uv's own folder, kept.
    """

    python: str
    platform: str
    pip: Mapping[str, str]
    there: Mapping[str, str]
    house: Path
    scratch: Path
    cache: Path
    offline: bool
    time_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What uv came to: versions by name, and what each of these requires; or the reasons why nothing fits."""

    versions: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    reasons: str = ""


def platform(system: str) -> str:
    """A base's system, by uv's name for it."""
    return f"x86_64-manylinux_{GLIBC[system]}" if system in GLIBC else "x86_64-unknown-linux-gnu"


def answer(asking: Asking, lines: Sequence[str], constraints: Sequence[str], *options: str) -> Answer:
    """A plan for requirement lines, of wheels alone: no code of a distribution is run.

    Raises:
        NotAskedError: where the index does not answer, or not in time, or uv does not work.
    """
    listing, bounds, plan = (asking.scratch / name for name in ("lines.in", "constraints.in", "plan.txt"))
    listing.write_text("\n".join(lines), encoding="utf-8")
    bounds.write_text("\n".join(constraints), encoding="utf-8")
    # What stands there already is preferred.
    plan.write_text("\n".join(f"{name}=={version}" for name, version in asking.there.items()), encoding="utf-8")
    command = [*_command(asking), *options, f"--constraints={bounds}", f"--output-file={plan}", str(listing)]
    done = _run(command, _environment(asking), asking)
    if done.returncode == 0:
        rows = [line.partition("==") for line in plan.read_text(encoding="utf-8").split()]
        return Answer(versions={name: version for name, _, version in rows}, requires=_edges(done.stderr))
    said = without_logins(done.stderr)
    reasons = re.sub(r"\s+", " ", said.partition("No solution found when resolving dependencies")[2])
    if not reasons or re.search(UNASKED, reasons):
        own = [line.strip() for line in said.splitlines() if not re.match(r"(?:DEBUG|TRACE|INFO|WARN) ", line)]
        raise NotAskedError("\n".join(own[-TAIL:]) or f"uv ended with exit code {done.returncode}")
    return Answer(reasons=re.sub(r"^\W*(?:cause: )?", "", reasons).strip())


def _command(asking: Asking) -> list[str]:
    links = [str(asking.house), *asking.pip.get("PIP_FIND_LINKS", "").split()]
    links = [
        place for place in links if "://" in place or Path(place).is_dir()
    ]  # pip passes over one that is not there
    flags = ["--no-index"] * ("PIP_NO_INDEX" in asking.pip) + ["--offline"] * asking.offline
    return [
        *(sys.executable, "-m", "uv", "pip", "compile", f"--config-file={_settings(asking)}"),
        *("--verbose", "--color=never"),
        *(f"--cache-dir={asking.cache}", f"--python={sys.executable}", "--no-python-downloads"),
        *(f"--python-version={asking.python}", f"--python-platform={asking.platform}"),
        *("--only-binary=:all:", "--no-header", "--no-annotate"),
        *(f"--find-links={place}" for place in links),
        *flags,
    ]


def _settings(asking: Asking) -> Path:
    """The only configuration that uv reads: the machine's index, and how long its answers stay good."""
    file = asking.scratch / "uv.toml"
    address = json.dumps(asking.pip.get("PIP_INDEX_URL"))  # TOML's strings are JSON's
    index = f"[[index]]\nurl = {address}\ndefault = true\n{AGES}\n" if "PIP_INDEX_URL" in asking.pip else ""
    file.write_text(index, encoding="utf-8")
    return file


def _environment(asking: Asking) -> dict[str, str]:
    """As pip would reach the index; passwords stay out of the command line."""
    pip = asking.pip
    found = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "UV_", "RUST_"))}
    names = {"SSL_CERT_FILE": "PIP_CERT", "SSL_CLIENT_CERT": "PIP_CLIENT_CERT"}
    names |= {"UV_HTTP_TIMEOUT": "PIP_DEFAULT_TIMEOUT", "UV_HTTP_RETRIES": "PIP_RETRIES"}
    names |= dict.fromkeys(("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"), "PIP_PROXY")
    found |= {ours: pip[theirs] for ours, theirs in names.items() if theirs in pip}
    found |= {"UV_HTTP_TIMEOUT": pip["PIP_TIMEOUT"]} if "PIP_TIMEOUT" in pip else {}
    return found | {"UV_INSECURE_HOST": " ".join(pip.get("PIP_TRUSTED_HOST", "").split()), "NO_COLOR": "1"}


def _run(command: Sequence[str], environment: Mapping[str, str], asking: Asking) -> subprocess.CompletedProcess[str]:
    try:
        with told.asking(shlex.join(command)):
            return subprocess.run(
                command,
                cwd=asking.scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=asking.time_limit_s,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise NotAskedError(f"no plan within {asking.time_limit_s:g} s") from None


def _edges(log: str) -> dict[tuple[str, str], list[str]]:
    """What each distribution that uv looked at requires, by name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    for edge in EDGE.finditer(log):
        if edge["asked"].partition("[")[0] != edge["name"]:  # an extra is uv's own node
            found.setdefault((edge["name"], edge["version"]), []).append(_requirement(edge["asked"], edge["range"]))
    return found


def _requirement(asked: str, versions: str) -> str:
    """A requirement as people write it, of uv's ranges; of a range that no specifier says, the name."""
    text = versions.replace(" ", "").removeprefix("*")
    text = re.sub(r"<([^,|]+)\|>=?\1\+?(?=,|$)", r"!=\1", text)
    try:
        return str(Requirement(f"{asked}{text}"))
    except InvalidRequirement:
        return asked
