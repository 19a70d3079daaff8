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
import tempfile
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
        if not isinstance(report["install"], list):
            raise Fault("pip's report has no list of installs")
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

    def __init__(self, root: Path, step: str, scratch: Path) -> None:
        self.root, self.step, self.scratch = root, step, scratch
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
        held = self.scratch / "constraints.txt"
        held.write_text(self.constraints(), encoding="utf-8")
        done, plan = self.dry_run(wanted, *options, f"--constraint={held}")
        if plan is None:
            raise Fault(*self.conflicts(wanted), "pip finds no plan:\n" + tail(done))
        chains = {canonicalize_name(requirement.name): chain for requirement, chain in reversed(asks(wanted, plan))}
        refuse([self.message(item, chains, *fault) for item in plan for fault in [self.against(item)] if fault])
        return plan

    def dry_run(self, wanted: list[Wanted], *options: str) -> tuple[str, list[Item] | None]:
        """Let pip plan; its message and, where it found one, the plan come back."""
        lines, report = self.scratch / "lines.txt", self.scratch / "report.json"
        lines.write_text("".join(f"{line.requirement}\n" for line in wanted), encoding="utf-8")
        report.unlink(missing_ok=True)
        done = self.pip("install", "--dry-run", f"--report={report}", *self.binary, *options, f"--requirement={lines}")
        return done.stdout, None if done.returncode else read_plan(report)

    def pip(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pip where no folder's content can be imported, with both streams as one text."""
        command = [sys.executable, "-m", "pip", *arguments]
        return subprocess.run(
            command, cwd=self.scratch, env=self.environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )

    def constraints(self) -> str:
        """Join what the seal, the policy and the overrides hold fast."""
        lines = [f"{name}{rule['version']}" for name, rule in self.policy["constraints"].items()]
        lines += [f"{name}=={rule['version']}" for name, rule in self.policy["overrides"].items()]
        return (self.root / "constraints.txt").read_text("utf-8") + "".join(f"{line}\n" for line in lines)

    def against(self, item: Item) -> tuple[str, str] | None:
        """Find the rule that an item breaks: what is wrong, and the place in the manifest."""
        here, name = self.rules["where"], item.name
        if sealed := self.sealed.get(name):
            return f"would replace the sealed {name} {sealed['version']}", here
        for provided, rule in self.policy["provided"].items():
            if canonicalize_name(provided) == name:
                return f"is built here from the source {rule['source']}", f"{here} or {rule['where']}"
        for glob, rule in self.policy["forbidden"].items():
            if fnmatchcase(name, glob.lower()):
                return f"is forbidden as {glob}: {rule['reason']}", f"{here} or {rule['where']}"
        if name in FAMILY:
            return "is of torch's family, and the base has none: every public one is a CUDA build", here
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            return None
        old = f"would replace {name} {dist.version}, which has no RECORD, so pip cannot uninstall it"
        return None if dist.read_text("RECORD") else (f"{old}: name it under `removed`", "removed")

    def message(self, item: Item, chains: dict[str, str], reason: str, where: str) -> str:
        asked = chains.get(item.name, "nobody that pip names asks for it")
        return f"{item.name} {item.version} {reason}\n    {asked}\n    change {self.policy['manifest']}, {where}"

    def conflicts(self, wanted: list[Wanted]) -> list[str]:
        """Plan once more without constraints, and list who asks for what they exclude."""
        _, plan = self.dry_run(wanted)
        planned = {item.name: item.version for item in plan or []}
        held = {name: (f"=={rule['version']}", f"the base has {name} {rule['version']}", self.rules["where"])
                for name, rule in self.sealed.items()}
        for key, sign in (("constraints", ""), ("overrides", "==")):
            for name, rule in self.policy[key].items():
                version = sign + rule["version"]
                held[canonicalize_name(name)] = version, f"{key} hold {name}{version}", f"{self.rules['where']} or {rule['where']}"
        faults = []
        for requirement, chain in asks(wanted, plan or []):
            name = canonicalize_name(requirement.name)
            if name in held and not agree(requirement.specifier, held[name][0], planned.get(name)):
                _, what, where = held[name]
                faults.append(f"{chain}, but {what}\n    change {self.policy['manifest']}, {where}")
        return list(dict.fromkeys(faults))

    def install(self, plan: list[Item]) -> None:
        """Install a judged plan and nothing else: each by name, version and hash."""
        if plan:
            exact = self.scratch / "exact.txt"
            lines = [f"{item.name}=={item.version} --hash=sha256:{item.sha256}\n" for item in plan]
            exact.write_text("".join(lines), encoding="utf-8")
            done = self.pip("install", "--no-deps", "--require-hashes", *self.binary, f"--requirement={exact}")
            refuse([f"pip did not install the judged plan:\n{tail(done.stdout)}"] if done.returncode else [])

    def run(self) -> int:
        """Judge and install the step's overrides, then the rest; keep the plan."""
        for key in self.unheard:
            print(f"judge: {self.step}: {key} of the machine's configuration is not used here")
        wanted, overrides = self.wanted()
        first = self.plan(overrides, "--no-deps")
        self.install(first)
        rest = self.plan(wanted)
        self.install(rest)
        chains = {canonicalize_name(requirement.name): chain
                  for requirement, chain in reversed(asks([*overrides, *wanted], [*first, *rest]))}
        kept = [{"name": item.name, "version": item.version, "url": bare(item.url), "sha256": item.sha256,
                 "requested_by": chains.get(item.name)} for item in [*first, *rest]]
        path = self.root / "plans" / f"{self.step}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"schema": 1, "step": self.step, "distributions": kept}), encoding="utf-8")
        return len(kept)


def agree(asked: SpecifierSet, held: str, planned: str | None) -> bool:
    """Whether a requirement and a constraint can both hold; for a range, whether the free plan keeps it."""
    if held.startswith("==") and not held.endswith("*"):
        return asked.contains(held[2:], prereleases=True)
    return not str(asked) or planned is None or SpecifierSet(held).contains(planned, prereleases=True)


def tail(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith(("Requirement already", "Collecting"))]
    return "\n".join(f"    {line}" for line in lines[-TAIL:])


def remove(root: Path, names: list[str], optional: list[str]) -> int:
    """Remove distributions of the base, also those that pip cannot uninstall."""
    sealed = json.loads((root / "seal.json").read_text("utf-8"))["distributions"]
    refuse([f"{name} is sealed" for name in [*names, *optional] if canonicalize_name(name) in sealed])
    found = {name: list(metadata.distributions(name=name)) for name in [*names, *optional]}
    refuse([f"{name} is not installed: take it out of `removed`, or say optional"
            for name in names if not found[name]])
    environment, _ = pip_environment()
    for name, copies in found.items():
        for copy in copies:
            if copy.read_text("RECORD") is None:
                remove_by_hand(copy)
                continue
            command = [sys.executable, "-m", "pip", "uninstall", "--yes", name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            refuse([f"{name}: {done.stderr.strip()}"] if done.returncode else [])
    return sum(map(len, found.values()))


def remove_by_hand(dist: metadata.Distribution) -> None:
    """Delete a copy without RECORD: its metadata, and the modules that no other distribution has."""
    folder, name = Path(str(dist.locate_file(""))), canonicalize_name(dist.metadata["Name"])
    own = re.findall(r"^\w+$", dist.read_text("top_level.txt") or "", re.MULTILINE) or [name.replace("-", "_")]
    others = [other for other in metadata.distributions() if canonicalize_name(other.metadata["Name"]) != name]
    taken = {file.parts[0].partition(".")[0] for other in others for file in other.files or []}
    for path in folder.iterdir():
        is_metadata = path.suffix in (".dist-info", ".egg-info") and not (path / "RECORD").exists()
        if is_metadata and canonicalize_name(path.stem.partition("-")[0]) == name:
            pass
        elif path.name.partition(".")[0] not in set(own) - taken or is_metadata:
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        print(f"judge: removed {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("install", "remove"))
    parser.add_argument("names", nargs="*", help="the step to install, or the distributions to remove")
    parser.add_argument("--optional", nargs="*", default=[])
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    given = parser.parse_intermixed_args()
    step = given.names[0] if given.command == "install" else "remove"
    try:
        with tempfile.TemporaryDirectory() as scratch:
            if given.command == "install":
                count = Judge(given.root, step, Path(scratch)).run()
            else:
                count = remove(given.root, given.names, given.optional)
    except Fault as fault:
        sys.exit("\n".join(f"judge: {step}: {line}" for line in fault.args))
    print(f"judge: {step}: {count} distributions {'installed as judged' if given.command == 'install' else 'removed'}")


if __name__ == "__main__":
    main()
