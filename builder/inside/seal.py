"""Seal distributions: record what is installed, and name whatever a later step changes."""

from __future__ import annotations

import argparse
import ast
import base64
import csv
import fnmatch
import hashlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterable
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


class Fault(Exception):  # noqa: N818 - the word of the messages
    """Everything that is wrong, a line each."""


def refuse(faults: list[str]) -> None:
    if faults:
        raise Fault(*faults)


def files_of(dist: metadata.Distribution) -> tuple[str | None, list[tuple[Path, str]]]:
    """Digest of RECORD, and path and hash of its files; without RECORD, all files of its modules."""
    rows = [(Path(str(dist.locate_file(row[0]))), row[1]) for row in csv.reader(text_of(dist, "RECORD"))]
    for path, _ in rows:
        if path.name == "RECORD" and path.parent.suffix == ".dist-info":
            # Python writes .pyc files anew whenever it likes: they are nobody's change.
            kept = [row for row in rows if row[0].suffix != ".pyc"]
            return hashlib.sha256(path.read_bytes()).hexdigest(), kept
    modules = [Path(str(dist.locate_file(name))) for name in text_of(dist, "top_level.txt")]
    found = [path for top in modules for path in (top.with_suffix(".py"), *top.rglob("*"))]
    return None, [(path, "") for path in found if path.is_file() and path.suffix != ".pyc"]


def text_of(dist: metadata.Distribution, name: str) -> list[str]:
    return (dist.read_text(name) or "").splitlines()


def seal_of(name: str, step: str) -> dict[str, Any]:
    """Record one installed distribution."""
    dist = metadata.distribution(name)
    digest, files = files_of(dist)
    stats = [(str(path), path.stat()) for path, _ in files if path.exists()]
    # Push and pull of an image cut a modification time to whole seconds.
    sizes = [[path, stat.st_size, int(stat.st_mtime)] for path, stat in stats]
    return {"version": dist.version, "record_sha256": digest, "files": sizes, "step": step}


def changes(seal: dict[str, Any]) -> list[str]:
    """List what differs from the seal by version, RECORD, size, time or owner."""
    lines = []
    for name, sealed in seal["distributions"].items():
        title = f"{name} {sealed['version']}"
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            lines.append(f"{title}: the distribution is gone")
            continue
        if dist.version != sealed["version"]:
            lines.append(f"{name}: replaced {sealed['version']} -> {dist.version}")
            continue
        found = [text for text in (_change(*file) for file in sealed["files"]) if text]
        if not found and files_of(dist)[0] != sealed["record_sha256"]:
            found = ["its RECORD changed"]  # same size, same second
        lines += [f"{title}: {text}" for text in found[:SHOWN]]
        lines += [f"{title}: and {len(found) - SHOWN} more files"] if len(found) > SHOWN else []
    return lines + second_owners(seal["distributions"])


def _change(path: str, size: int, mtime: int) -> str | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return f"file missing: {path}"
    return None if (stat.st_size, int(stat.st_mtime)) == (size, mtime) else f"file changed: {path}"


def rehash(seal: dict[str, Any]) -> list[str]:
    """List the sealed files whose bytes are not those of RECORD; reads every file."""
    rows = [(name, row) for name in seal["distributions"] for row in files_of(metadata.distribution(name))[1]]
    return [f"{name}: not the bytes of its RECORD: {path}" for name, (path, hash_) in rows if not _holds(path, hash_)]


def _holds(path: Path, wanted: str) -> bool:
    if not wanted or not path.exists():
        return True  # RECORD has no hash of itself; a file that has gone since is among the changes
    algorithm, _, value = wanted.partition("=")
    digest = hashlib.new(algorithm)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=") == value


def second_owners(names: Iterable[str]) -> list[str]:
    """List the top-level modules of `names` that another distribution brings too."""
    infos = [info for folder in dict.fromkeys(sys.path) for info in Path(folder).glob("*.dist-info/RECORD")]
    texts = {info.parent.stem: info.read_text("utf-8") for info in infos}  # keys like torch-2.12.0
    sealed = {title for title in texts if canonicalize_name(title.rpartition("-")[0]) in set(names)}
    every = re.compile(MODULE.format("[^,/.]+"), re.MULTILINE)
    modules = {name for title in sealed for name in every.findall(texts[title])}.difference(NO_MODULES)
    ours = re.compile(MODULE.format("|".join(sorted(map(re.escape, modules))) or "(?!)"), re.MULTILINE)
    found = sorted((module, title) for title in texts for module in set(ours.findall(texts[title])))
    owners = {module: [title for name, title in found if name == module] for module, _ in found}
    message = "a second distribution owns the module {}: {}"
    return [message.format(name, ", ".join(titles)) for name, titles in owners.items() if len(titles) > 1]


def resolve(names: list[str], optional: list[str]) -> list[str]:
    """Find the installed distributions that names and globs mean."""
    installed = {canonicalize_name(dist.metadata["Name"]) for dist in metadata.distributions()}
    found = {name: fnmatch.filter(installed, canonicalize_name(name)) for name in [*names, *optional]}
    faults = {name: _who_provides(name) for name in found if not found[name]}
    refuse([f"{name} is no installed distribution, {text or 'and nothing provides such a module'}"
            for name, text in faults.items() if text or name in names])
    return sorted({match for matches in found.values() for match in matches})


def _who_provides(name: str) -> str | None:
    module = name.replace("-", "_")
    if providers := metadata.packages_distributions().get(module):
        return f"its module {module} comes from {', '.join(sorted(set(providers)))}"
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    return f"but {spec.origin} is importable: its metadata is missing" if spec and spec.origin else None


def family_faults(names: list[str]) -> list[str]:
    """List why torch and its family are no ROCm build that fits together; they are read, never imported."""
    faults = []
    for name in (name for name in FAMILY if name in names):
        fields, title = _fields(name), f"{name} {metadata.version(name)}"
        if name == "torch" and not fields.get("hip"):
            faults.append(f"{title} is not a ROCm build: torch/version.py has no hip")
        if fields.get("cuda"):
            faults.append(f"{title} is a CUDA build: {name}/version.py has cuda = {fields['cuda']!r}")
        for requirement in map(Requirement, metadata.requires(name) or []):
            applies = not requirement.marker or requirement.marker.evaluate({"extra": ""})
            # What the others need outside the family is for `pip check`, which is recorded.
            if applies and (name == "torch" or canonicalize_name(requirement.name) in FAMILY):
                faults += [f"{title} requires {requirement}, {text}" for text in _unmet(requirement)]
    return faults


def _unmet(requirement: Requirement) -> list[str]:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return ["which is not installed"]
    fits = requirement.specifier.contains(version, prereleases=True)
    return [] if fits else [f"but {requirement.name} is {version}"]


def _fields(name: str) -> dict[str, Any]:
    path = Path(str(metadata.distribution(name).locate_file(f"{name}/version.py")))
    tree = ast.parse(path.read_text("utf-8") if path.exists() else "")
    pairs = [(target, node.value) for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))
             for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    return {key.id: value.value for key, value in pairs
            if isinstance(key, ast.Name) and isinstance(value, ast.Constant)}


def pip_check() -> list[str]:
    """Ask `pip check`; an image may have the lines that its base has."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    refuse([f"pip check did not run: {done.stderr}"] if done.returncode and not done.stdout else [])
    return done.stdout.splitlines() if done.returncode else []


def run(command: str, step: str, names: list[str], optional: list[str], root: Path) -> int:
    """Do what the command line asks; the count of sealed distributions comes back."""
    path, seal = root / "seal.json", {"schema": 1, "distributions": {}, "pip_check": []}
    if command != "create":
        seal = json.loads(path.read_text("utf-8"))
        refuse(changes(seal))
    sealed: dict[str, Any] = seal["distributions"]
    if command != "check":
        names = resolve(names, optional)
        refuse(second_owners([*sealed, *names]))
        if command == "create":
            refuse(family_faults(names))
            seal["pip_check"] = pip_check()
        sealed.update((name, seal_of(name, step)) for name in names)
        root.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(seal), encoding="utf-8")
        lines = [f"{name}=={sealed[name]['version']}\n" for name in sorted(sealed)]
        (root / "constraints.txt").write_text("".join(lines), encoding="utf-8")
    return len(sealed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("create", "check", "add"))
    parser.add_argument("names", nargs="+", help="distributions; of check and add, the step comes first")
    parser.add_argument("--optional", nargs="*", default=[])
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    given = parser.parse_intermixed_args()
    step = "base" if given.command == "create" else given.names.pop(0)
    try:
        count = run(given.command, step, given.names, given.optional, given.root)
    except Fault as fault:
        sys.exit("\n".join(f"seal: {step}: {line}" for line in fault.args))
    print(f"seal: {step}: {count} distributions are as sealed")


if __name__ == "__main__":
    main()
