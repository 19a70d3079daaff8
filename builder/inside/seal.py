"""Seal distributions: record what is installed, and name whatever a later step changes."""

import argparse
import ast
import base64
import csv
import fnmatch
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

FAMILY = ("torch", "torchvision", "torchaudio", "triton")
# Several projects ship these folders by mistake; sharing one breaks nobody's import.
NO_MODULES = ("benchmarks", "docs", "examples", "test", "tests")
MODULE = r"^({})(?:/__init__\.py|\.py|\.[^,/]*so),"  # a line of RECORD that makes a name importable
SHOWN = 3  # changed files that a message names; the rest are counted
NOBODY = "and nothing provides such a module"


def refuse(step: str, faults: list[str]) -> None:
    if faults:
        sys.exit("\n".join(f"seal: {step}: {fault}" for fault in faults))


def files_of(name: str) -> list[tuple[str, str]]:
    """List path and hash of what RECORD names; without RECORD, of all that lies under the modules."""
    dist = metadata.distribution(name)
    record = csv.reader((dist.read_text("RECORD") or "").splitlines())
    rows = [(str(dist.locate_file(row[0])), row[1]) for row in record]
    for top in [] if rows else (dist.read_text("top_level.txt") or "").split():
        path = Path(str(dist.locate_file(top)))
        rows += [(str(file), "") for file in (path.with_suffix(".py"), *path.rglob("*")) if file.is_file()]
    # Python writes .pyc files anew whenever it likes: they are nobody's change.
    return [(os.path.normpath(path), digest) for path, digest in rows if not path.endswith(".pyc")]


def state(path: str) -> list[Any] | None:
    """Read path, size and time of a file; push and pull of an image cut the time to whole seconds."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - thirty thousand times, in half a second
    except OSError:
        return None
    return [path, stat.st_size, int(stat.st_mtime)]


def record_sha256(files: list[Any]) -> str | None:
    """Digest the RECORD among the files, so that none is rewritten unseen."""
    found = [path for path, *_ in files if path.endswith(".dist-info/RECORD")]
    return hashlib.sha256(Path(found[0]).read_bytes()).hexdigest() if found else None


def changes(seal: dict[str, Any]) -> list[str]:
    """List what differs from the seal by version, RECORD, size, time or owner."""
    lines = []
    for name, sealed in seal["distributions"].items():
        title = f"{name} {sealed['version']}"
        dist = next(iter(metadata.distributions(name=name)), None)
        if not dist or dist.version != sealed["version"]:
            gone = f"{title}: the distribution is gone"
            lines.append(f"{name}: replaced {sealed['version']} -> {dist.version}" if dist else gone)
            continue
        pairs = [(file[0], state(file[0])) for file in sealed["files"] if state(file[0]) != file]
        found = [f"{title}: file {'changed' if now else 'missing'}: {path}" for path, now in pairs]
        if not found and record_sha256(sealed["files"]) != sealed["record_sha256"]:
            found = [f"{title}: its RECORD changed"]
        lines += found[:SHOWN] + [f"{title}: and {len(found) - SHOWN} more files"] * (len(found) > SHOWN)
    return lines + second_owners(list(seal["distributions"]))


def rehash(seal: dict[str, Any]) -> list[str]:
    """List the sealed files whose bytes are not those of RECORD; reads every file."""
    lines = []
    for name in seal["distributions"]:
        for path, (algorithm, _, wanted) in ((path, text.partition("=")) for path, text in files_of(name)):
            if wanted and (file := Path(path)).exists() and digest(file, algorithm) != wanted:
                lines.append(f"{name}: not the bytes of its RECORD: {path}")
    return lines


def digest(path: Path, algorithm: str) -> str:
    """Hash a file as RECORD notes it; some are larger than the memory."""
    found = hashlib.new(algorithm)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return base64.urlsafe_b64encode(found.digest()).decode().rstrip("=")


def second_owners(names: list[str]) -> list[str]:
    """List the top-level modules of `names` that another distribution brings too."""
    infos = [info for folder in dict.fromkeys(sys.path) for info in Path(folder).glob("*.dist-info/RECORD")]
    texts = {info.parent.stem: info.read_text("utf-8") for info in infos}  # keys like torch-2.12.0
    sealed = [title for title in texts if canonicalize_name(title.rpartition("-")[0]) in names]
    every = re.compile(MODULE.format("[^,/.]+"), re.MULTILINE)
    modules = {name for title in sealed for name in every.findall(texts[title])}.difference(NO_MODULES)
    ours = re.compile(MODULE.format("|".join(sorted(map(re.escape, modules))) or "(?!)"), re.MULTILINE)
    pairs = [(name, title) for title in sorted(texts) for name in set(ours.findall(texts[title]))]
    owners = {module: [title for name, title in pairs if name == module] for module in sorted(modules)}
    message = "a second distribution owns the module {}: {}"
    return [message.format(name, ", ".join(titles)) for name, titles in owners.items() if len(titles) > 1]


def resolve(step: str, names: list[str], optional: list[str]) -> list[str]:
    """Find the installed distributions that names and globs mean; an optional one may mean none."""
    installed = {canonicalize_name(dist.metadata["Name"]) for dist in metadata.distributions()}
    found = {name: fnmatch.filter(installed, canonicalize_name(name)) for name in [*names, *optional]}
    absent = [(name, provider(name)) for name in found if not found[name]]
    absent = [(name, text) for name, text in absent if name in names or text != NOBODY]
    refuse(step, [f"{name} is no installed distribution, {text}" for name, text in absent])
    return sorted(set().union(*found.values()))


def provider(name: str) -> str:
    """Say who provides the module that people mean by the name."""
    module = name.replace("-", "_")
    if providers := metadata.packages_distributions().get(module):
        return f"its module {module} comes from {', '.join(sorted(set(providers)))}"
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    return f"but {spec.origin} is importable: its metadata is missing" if spec and spec.origin else NOBODY


def family_faults(names: list[str]) -> list[str]:
    """List why torch and its family are no ROCm build that fits together; read, never imported."""
    faults = []
    for name in (name for name in FAMILY if name in names):
        title, fields = f"{name} {metadata.version(name)}", version_fields(name)
        if name == "torch" and not fields.get("hip"):
            faults.append(f"{title} is not a ROCm build: torch/version.py has no hip")
        if fields.get("cuda"):
            faults.append(f"{title} is a CUDA build: {name}/version.py has cuda = {fields['cuda']!r}")
        for need in map(Requirement, metadata.requires(name) or []):
            needed = canonicalize_name(need.name)
            found = next(iter(metadata.distributions(name=needed)), None)
            # What the others need outside the family is for `pip check`, which is recorded.
            if (need.marker and not need.marker.evaluate({"extra": ""})) or "torch" not in (name, needed):
                continue
            if not found or not need.specifier.contains(found.version, prereleases=True):
                version = found.version if found else "not installed"
                faults.append(f"{title} requires {need}, but {needed} is {version}")
    return faults


def version_fields(name: str) -> dict[str, Any]:
    """Read the constants of a package's version.py."""
    path = Path(str(metadata.distribution(name).locate_file(f"{name}/version.py")))
    body = ast.parse(path.read_text("utf-8") if path.exists() else "").body
    nodes = [node for node in body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    pairs = [(node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value) for node in nodes]
    return {ast.unparse(key): value.value for key, value in pairs if isinstance(value, ast.Constant)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("create", "check", "add"))
    parser.add_argument("names", nargs="+", help="distributions; of check and add, the step comes first")
    parser.add_argument("--optional", nargs="*", action="extend", default=[])
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    given = parser.parse_intermixed_args()
    seal: dict[str, Any] = {"schema": 1, "distributions": {}, "pip_check": []}
    step = "base" if given.command == "create" else given.names.pop(0)
    if given.command != "create":
        seal = json.loads((given.root / "seal.json").read_text("utf-8"))
        refuse(step, changes(seal))
    sealed = seal["distributions"]
    if given.command != "check":
        names = resolve(step, given.names, given.optional)
        refuse(step, second_owners([*sealed, *names]))
        if given.command == "create":
            refuse(step, family_faults(names))
            command = [sys.executable, "-m", "pip", "check"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode and not done.stdout:
                refuse(step, [f"pip check did not run: {done.stderr}"])
            seal["pip_check"] = done.stdout.splitlines() if done.returncode else []
        for name in names:
            files = [now for path, _ in files_of(name) if (now := state(path))]
            version, record = metadata.version(name), record_sha256(files)
            sealed[name] = {"version": version, "record_sha256": record, "files": files, "step": step}
        given.root.mkdir(parents=True, exist_ok=True)
        (given.root / "seal.json").write_text(json.dumps(seal), encoding="utf-8")
        lines = [f"{name}=={sealed[name]['version']}\n" for name in sorted(sealed)]
        (given.root / "constraints.txt").write_text("".join(lines), encoding="utf-8")
    print(f"seal: {step}: {len(sealed)} distributions are as sealed")


if __name__ == "__main__":
    main()
