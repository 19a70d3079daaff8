"""Judge what pip would install, refuse what breaks the base, then install exactly the rest."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
from pip._vendor.packaging.specifiers import SpecifierSet
from pip._vendor.packaging.utils import canonicalize_name

# How pip reaches packages is the machine's affair, and kept.
TRANSPORT = (
    "cache-dir", "cert", "client-cert", "default-timeout", "find-links", "index-url", "keyring-provider",
    "no-cache-dir", "no-index", "proxy", "retries", "timeout", "trusted-host",
)
# What pip chooses, and where it puts it, is the policy's; a machine's word on that is not heard.
RESOLUTION = (
    "break-system-packages", "build-constraint", "constraint", "extra-index-url", "force-reinstall",
    "ignore-installed", "ignore-requires-python", "no-binary", "no-build-isolation", "no-deps",
    "only-binary", "pre", "prefer-binary", "prefix", "require-hashes", "require-virtualenv", "requirement",
    "root", "target", "upgrade", "upgrade-strategy", "user",
)
FAMILY = ("pytorch-triton", "pytorch-triton-rocm", "torch", "torchaudio", "torchvision", "triton", "triton-rocm")
TAIL = 12  # lines of pip's own message that are shown


class Fault(Exception):  # noqa: N818 - the word of the messages
    """Everything that is wrong, a line each."""


@dataclass(frozen=True)
class Wanted:
    """One line of a requirement file."""

    requirement: Requirement
    origin: str

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)


@dataclass(frozen=True)
class Item:
    """One distribution that pip would install."""

    name: str
    version: str
    url: str
    sha256: str
    requires: tuple[Requirement, ...]


def refuse(faults: list[str]) -> None:
    if faults:
        raise Fault(*faults)


def flatten(path: Path, root: Path, seen: tuple[Path, ...] = ()) -> tuple[list[Wanted], list[str]]:
    """Read a requirement file with those that it includes: its lines, and what is refused of them."""
    wanted, faults, text = [], [], ""
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    if path in seen or not path.is_file():
        return [], [f"{shown}: {'includes itself' if path in seen else 'no such file'}"]
    for number, line in enumerate(path.read_text("utf-8-sig").splitlines(), 1):
        text += re.sub(r"(^|\s)#.*$", "", line)
        if text.endswith("\\"):
            text = text[:-1]
            continue
        text, line, place = "", text.strip(), f"{shown}:{number}"
        if include := re.fullmatch(r"(?:-r|--requirement)[\s=]*(\S+)", line):
            more = flatten(Path(os.path.normpath(path.parent / include[1])), root, (*seen, path))
            wanted, faults = wanted + more[0], faults + more[1]
        elif re.search(r"(?:^|\s)-", line):
            faults.append(f"{place}: option {line!r}: a requirement file may only name distributions")
        elif line:
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                faults.append(f"{place}: {line!r} is not a name with a version; paths are not installed here")
                continue
            if requirement.url:
                faults.append(f"{place}: {line!r} comes from an address, which no hash pins")
            wanted.append(Wanted(requirement, place))
    return wanted, faults


def pip_environment() -> tuple[dict[str, str], list[str]]:
    """Make the environment for pip: the machine's transport without its say in resolution."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    refuse([f"pip's configuration cannot be read: {done.stderr.strip()}"] if done.returncode else [])
    # Later ones win in pip: files for all commands, files for `install`, the environment.
    rows = re.findall(r"^(global|install|:env:)\.([\w-]+)=(.*)$", done.stdout, re.MULTILINE)
    rows.sort(key=lambda row: ("global", "install", ":env:").index(row[0]))
    given = {key: str(ast.literal_eval(value)) for _, key, value in rows}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    kept |= {f"PIP_{key.upper().replace('-', '_')}": given[key] for key in given if key in TRANSPORT}
    unheard = [key for key in given if key in RESOLUTION] + [key for key in os.environ if key.startswith("UV_")]
    return kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}, sorted(unheard)


def read_plan(path: Path) -> list[Item]:
    """Read pip's report; whatever is not fully understood is refused."""
    try:
        report = json.loads(path.read_text("utf-8"))
        if report["version"] not in ("0", "1"):
            raise Fault(f"pip's report is of the unknown version {report['version']!r}")
        return [_item(entry) for entry in report["install"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"pip's report cannot be judged: {type(error).__name__}: {error}") from error


def _item(entry: dict[str, Any]) -> Item:
    about, source = entry["metadata"], entry["download_info"]
    archive = source.get("archive_info", {})
    sha256 = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    name = canonicalize_name(about["name"])
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise Fault(f"{name} {about['version']}: no sha256 for {bare(source['url'])}")
    return Item(name, about["version"], source["url"], sha256, tuple(map(Requirement, about.get("requires_dist", []))))


def bare(url: str) -> str:
    """Strip an address of its credentials."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()


def applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return not marker or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def asks(wanted: list[Wanted], plan: list[Item]) -> list[tuple[Requirement, str]]:
    """List every requirement met on the way down from the lines, with who asks for it; nearest first."""
    planned = {item.name: item for item in plan}
    queue = [(line.requirement, f"{line.origin} asks for {line.requirement}") for line in wanted]
    queue = [(requirement, chain) for requirement, chain in queue if applies(requirement, set())]
    seen, found = set(), []
    while queue:
        requirement, chain = queue.pop(0)
        found.append((requirement, chain))
        name = canonicalize_name(requirement.name)
        if (key := (name, *sorted(requirement.extras))) in seen:
            continue
        seen.add(key)
        version, needs = about(name, planned)
        chained = [(need, f"{name} {version} asks for {need}, {chain}") for need in needs]
        queue += [(need, link) for need, link in chained if applies(need, requirement.extras)]
    return found


def about(name: str, planned: dict[str, Item]) -> tuple[str, list[Requirement]]:
    if item := planned.get(name):
        return item.version, list(item.requires)
    try:
        dist = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return "", []
    return dist.version, list(map(Requirement, dist.requires or []))


class Judge:
    """One step's policy, and the seal that it may not break."""

    def __init__(self, root: Path, step: str) -> None:
        self.root, self.step = root, step
        self.policy = json.loads((root / "policy.json").read_text("utf-8"))
        self.rules = self.policy["steps"][step]
        self.sealed = json.loads((root / "seal.json").read_text("utf-8"))["distributions"]
        self.environment, self.unheard = pip_environment()
        sources = ",".join(self.policy["source_builds"])
        self.binary = ["--only-binary", ":all:", *(["--no-binary", sources] if sources else [])]

    def wanted(self) -> tuple[list[Wanted], list[Wanted]]:
        """Read what the step asks for; the lines of overrides come second, at their versions."""
        lines, faults = flatten(self.root / self.rules["file"], self.root)
        refuse(faults)
        lines = [line for line in lines if line.name not in map(canonicalize_name, self.rules["without"])]
        added = f"{self.policy['manifest']}, {self.rules['where']}"
        lines += [Wanted(Requirement(text), added) for text in self.rules["add"]]
        overrides = {canonicalize_name(name): rule for name, rule in self.policy["overrides"].items()}
        named = {line.name: line for line in lines if line.name in overrides and applies(line.requirement, set())}
        exact = [Wanted(Requirement(f"{name}=={overrides[name]['version']}"), line.origin) for name, line in named.items()]
        return [line for line in lines if line.name not in overrides], exact

    def plan(self, wanted: list[Wanted], *options: str) -> list[Item]:
        """Ask pip what it would install, and refuse what the policy forbids."""
        if not wanted:
            return []
        done, plan = self.dry_run(wanted, *options, "--constraint", self.constraints())
        if plan is None:
            raise Fault(*self.conflicts(wanted), "pip finds no plan:\n" + tail(done))
        chains = {canonicalize_name(requirement.name): chain for requirement, chain in reversed(asks(wanted, plan))}
        refuse([self.message(item, chains, *fault) for item in plan for fault in [self.against(item)] if fault])
        return plan
