"""Seal distributions: record what is installed, and name whatever a later step changes."""

import argparse
import ast
import base64
import csv
import fnmatch
import functools
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version

FAMILY = ("torch", "torchvision", "torchaudio", "triton")
# Several projects ship these folders by mistake; sharing one breaks nobody's import.
NO_MODULES = ("benchmarks", "docs", "examples", "test", "tests")
MODULE = r"^({})(?:/__init__\.py|\.py|\.[^,/]*so),"  # a line of RECORD that makes a name importable
INTO = r"^({})/"  # a line that brings any file into it
SHOWN = 3  # changed files that a message names; the rest are counted
NOBODY = "and nothing provides such a module"


def refuse(step: str, faults: list[str]) -> None:
    if faults:
        blame = ["the base came like this, no step has changed it: choose another (base)"] * (step == "base")
        sys.exit("\n".join(f"seal: {step}: {fault}" for fault in faults + blame))


def installed(name: str) -> metadata.Distribution | None:
    return next(iter(metadata.distributions(name=name)), None)


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


def replaced(name: str, sealed: dict[str, Any], dist: metadata.Distribution | None) -> list[str]:
    if not dist:
        return [f"{name} {sealed['version']}: the distribution is gone"]
    return [f"{name}: replaced {sealed['version']} -> {dist.version}"] * (dist.version != sealed["version"])


def changed_files(name: str, sealed: dict[str, Any], _: metadata.Distribution | None) -> list[str]:
    title = f"{name} {sealed['version']}"
    pairs = [(file[0], state(file[0])) for file in sealed["files"] if state(file[0]) != file]
    found = [f"{title}: file {'changed' if now else 'missing'}: {path}" for path, now in pairs]
    return found[:SHOWN] + [f"{title}: and {len(found) - SHOWN} more files"] * (len(found) > SHOWN)


def changed_record(name: str, sealed: dict[str, Any], _: metadata.Distribution | None) -> list[str]:
    same = record_sha256(sealed["files"]) == sealed["record_sha256"]
    return [] if same else [f"{name} {sealed['version']}: its RECORD changed"]


def changes(seal: dict[str, Any]) -> list[str]:
    """List what differs from the seal: of each distribution what the first rule finds, then of owners."""
    lines = []
    for name, sealed in seal["distributions"].items():
        dist = installed(name)
        lines += next(filter(None, (rule(name, sealed, dist) for rule in CHANGES)), [])
    return lines + [fault for rule in OWNERS for fault in rule(list(seal["distributions"]), seal["guests"])]


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


@functools.cache
def brought() -> dict[str, str]:
    """Read what every distribution brings: titles like torch-2.12.0, with the lines of its RECORD."""
    folders = [Path(folder) for folder in dict.fromkeys(sys.path)]
    texts = {info.stem: lines_of(info) for folder in folders for info in folder.glob("*-info") if info.is_dir()}
    return dict(sorted(texts.items()))


def lines_of(info: Path) -> str:
    if (record := info / "RECORD").is_file():
        return record.read_text("utf-8")
    tops = (info / "top_level.txt").read_text("utf-8").split() if (info / "top_level.txt").is_file() else []
    return "".join(f"{top}/__init__.py,\n" for top in tops)


def modules_of(names: list[str]) -> set[str]:
    sealed = [title for title in brought() if canonicalize_name(title.rpartition("-")[0]) in names]
    every = re.compile(MODULE.format("[^,/.]+"), re.MULTILINE)
    return {name for title in sealed for name in every.findall(brought()[title])}.difference(NO_MODULES)


def bringers(names: list[str], pattern: str) -> list[tuple[str, str]]:
    """List the modules of `names` with each distribution that brings a line of that pattern about one."""
    modules = "|".join(sorted(map(re.escape, modules_of(names)))) or "(?!)"
    ours = re.compile(pattern.format(modules), re.MULTILINE)
    return [(name, title) for title, text in brought().items() for name in sorted(set(ours.findall(text)))]


def second_owners(names: list[str], _: Sequence[Any] = ()) -> list[str]:
    """List the top-level modules of `names` that another distribution brings too."""
    owners: dict[str, list[str]] = {}
    for module, title in bringers(names, MODULE):
        owners.setdefault(module, []).append(title)
    message = "a second distribution owns the module {}: {}"
    return [message.format(name, ", ".join(titles)) for name, titles in sorted(owners.items()) if len(titles) > 1]


def guests(names: list[str]) -> list[list[str]]:
    """List who brings files into a module of `names` without being one of them: some bases have such."""
    owners = bringers(names, MODULE)
    found = [pair for pair in bringers(names, INTO) if pair not in owners]
    return [[module, canonicalize_name(title.rpartition("-")[0])] for module, title in found]


def new_guests(names: list[str], known: Sequence[Any]) -> list[str]:
    found = [pair for pair in guests(names) if pair not in known and pair[1] not in names]
    return [f"{title} brings files into the sealed module {module}" for module, title in found]


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


def no_hip(name: str, fields: dict[str, Any]) -> Iterator[str]:
    if name == "torch" and not fields.get("hip"):
        yield "is not a ROCm build: torch/version.py has no hip"


def cuda_fields(name: str, fields: dict[str, Any]) -> Iterator[str]:
    if fields.get("cuda"):
        yield f"is a CUDA build: {name}/version.py has cuda = {fields['cuda']!r}"


def other_version(name: str, fields: dict[str, Any]) -> Iterator[str]:
    """The public index calls 2.13.0 what calls itself 2.13.0+cu130; AMD's builds may drop a label, and have a hip."""
    recorded, own = Version(metadata.version(name)), fields.get("__version__")
    if own and not fields.get("hip"):
        inner = Version(str(own))
        if inner.public != recorded.public or (inner.local and inner.local != recorded.local):
            yield f"is another build than its metadata says: {name}/version.py has {own!r}, and no hip"


def other_hip(_: str, fields: dict[str, Any]) -> Iterator[str]:
    torch = version_fields("torch").get("hip") if installed("torch") else None
    own = fields.get("hip")
    if torch and own and str(own).split(".")[:2] != str(torch).split(".")[:2]:
        yield f"is for another ROCm than torch: hip is {own!r}, torch's is {torch!r}"


def unmet_requirements(name: str, _: dict[str, Any]) -> Iterator[str]:
    """What the others need outside the family is for `pip check`, which is recorded."""
    for need in map(Requirement, metadata.requires(name) or []):
        needed = canonicalize_name(need.name)
        if (need.marker and not need.marker.evaluate({"extra": ""})) or "torch" not in (name, needed):
            continue
        found = installed(needed)
        if not found or not need.specifier.contains(found.version, prereleases=True):
            yield f"requires {need}, but {needed} is {found.version if found else 'not installed'}"


def family_faults(names: list[str]) -> list[str]:
    """List why torch and its family are no ROCm build that fits together; read, never imported."""
    family = [(name, f"{name} {metadata.version(name)}", version_fields(name)) for name in FAMILY if name in names]
    return [f"{title} {text}" for name, title, fields in family for rule in BASE for text in rule(name, fields)]


def version_fields(name: str) -> dict[str, Any]:
    """Read the constants of a package's version.py."""
    path = Path(str(metadata.distribution(name).locate_file(f"{name}/version.py")))
    body = ast.parse(path.read_text("utf-8") if path.exists() else "").body
    nodes = [node for node in body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    pairs = [(node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value) for node in nodes]
    return {ast.unparse(key): value.value for key, value in pairs if isinstance(value, ast.Constant)}


# The rules. Each is needed: tests/guards removes one at a time.
BASE = (  # of the family that a base comes with
    no_hip,
    cuda_fields,
    other_version,
    other_hip,
    unmet_requirements,
)
CHANGES = (  # of one sealed distribution, after a step; the first that finds something speaks
    replaced,
    changed_files,
    changed_record,
)
OWNERS = (  # of the modules of all sealed distributions
    second_owners,
    new_guests,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("create", "check", "add"))
    parser.add_argument("names", nargs="+", help="distributions; of check and add, the step comes first")
    parser.add_argument("--optional", nargs="*", action="extend", default=[])
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    given = parser.parse_intermixed_args()
    seal: dict[str, Any] = {"schema": 1, "distributions": {}, "guests": [], "modules": [], "pip_check": []}
    step = "base" if given.command == "create" else given.names.pop(0)
    if given.command != "create":
        seal = json.loads((given.root / "seal.json").read_text("utf-8"))
        refuse(step, changes(seal))
    sealed = seal["distributions"]
    if given.command != "check":
        names = resolve(step, given.names, given.optional)
        every = [*sealed, *names]
        refuse(step, [fault for rule in OWNERS for fault in rule(every, guests(every))])
        if given.command == "create":
            refuse(step, family_faults(names))
            command = [sys.executable, "-m", "pip", "check"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 1) or (done.returncode and not done.stdout):
                refuse(step, [f"pip check did not run: {done.stdout}{done.stderr}"])
            seal["pip_check"] = done.stdout.splitlines() if done.returncode else []
        for name in names:
            files = [now for path, _ in files_of(name) if (now := state(path))]
            version, record = metadata.version(name), record_sha256(files)
            sealed[name] = {"version": version, "record_sha256": record, "files": files, "step": step}
        seal |= {"guests": guests(list(sealed)), "modules": sorted(modules_of(list(sealed)))}
        (given.root / "seal.json").write_text(json.dumps(seal), encoding="utf-8")
        lines = [f"{name}=={sealed[name]['version']}\n" for name in sorted(sealed)]
        (given.root / "constraints.txt").write_text("".join(lines), encoding="utf-8")
    print(f"seal: {step}: {len(sealed)} distributions are as sealed")


if __name__ == "__main__":
    main()
