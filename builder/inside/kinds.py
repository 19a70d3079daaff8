"""The kinds of check: each a function of the world and of its entry in the list."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import device
import imports
import seal
from checked import CouldNotRun, Failed, Name, World, compiled_of, is_broken, modules_of, no_device
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version

LEFTOVERS = re.compile(r"(^|/)(build|dist|__pycache__|[^/]+\.egg-info)/|\.(so|pyc)$")
PIP_CHECK = re.compile(r"^(?P<who>\S+) \S+ (requires (?P<missing>[^,\s]+), which|has requirement (?P<unmet>[\w.-]+))")


def torch_rocm(world: World, _: dict[str, Any]) -> str:
    world.import_one("torch")
    fields = ("__version__", "version.hip", "version.cuda")
    version, hip, cuda = (found.get("text") for found in world.take([("torch", name) for name in fields]))
    if hip in (None, "None") or cuda != "None":
        raise Failed(f"torch {version} is no ROCm build: hip={hip}, cuda={cuda}")
    return f"torch {version}, hip {hip}"


def seal_holds(world: World, _: dict[str, Any]) -> str:
    sealed = world.read("seal.json")
    found = seal.changes(sealed) or seal.rehash(sealed)
    if found:
        raise Failed("\n".join(found))
    return f"{len(sealed['distributions'])} distributions"


def owners(world: World, _: dict[str, Any]) -> str:
    names = list(world.read("seal.json")["distributions"])
    if found := seal.second_owners(names):
        raise Failed("\n".join(found))
    return f"{len(names)} distributions"


def source(world: World, check: dict[str, Any]) -> str:
    record = world.read(f"sources/{check['source']}.json")
    title = f"{record['repository']} at {record['commit']}"
    if not record["kept"]:
        return f"{title}, built and gone"

    def git(*arguments: str) -> bytes:
        try:
            code, output, errors = world.run("git", "-c", "safe.directory=*", "-C", record["checkout"], *arguments)
        except FileNotFoundError:
            raise CouldNotRun("the image has no git") from None
        if code:
            raise Failed(f"git {arguments[0]} in {record['checkout']}: {errors}")
        return bytes(output)

    if (head := git("rev-parse", "HEAD").decode().strip()) != record["commit"]:
        raise Failed(f"{record['checkout']} is at {head}, its record says {record['commit']}")
    if hashlib.sha256(git("diff", "HEAD")).hexdigest() != record["diff_sha256"]:
        names = git("diff", "--name-only", "HEAD").decode().split()
        raise Failed(f"changed since it was patched; files that differ from the commit: {', '.join(names) or 'none'}")
    listed = git("ls-files", "--others", "--exclude-standard", "-z").decode().split("\0")
    strange = {name for name in listed if name and not LEFTOVERS.search(name)}
    for patch in reversed([entry["path"] for entry in record["patches"]]):  # what a patch creates is in no commit
        lines = git("apply", "--numstat", "-z", patch).decode().split("\0")
        made = strange & {line.split("\t")[2] for line in lines if line}
        for name in made:
            git("apply", "--reverse", "--check", f"--include={name}", patch)
        strange -= made
    if strange:
        raise Failed(f"files that are in no commit: {', '.join(sorted(strange)[:5])}")
    return title


def version(_: World, check: dict[str, Any]) -> str:
    title = f"{check['distribution']} {metadata.version(check['distribution'])}"
    if Version(title.split()[1]).public != Version(check["tag"]).public:
        raise Failed(f"{title} is installed, the tag is {check['tag']}")
    return f"{title}, the tag is {check['tag']}"


def pip_check(world: World, check: dict[str, Any]) -> str:
    known = set(world.read("seal.json")["pip_check"])
    pairs = ((who, what) for who, needs in check["waived"].items() for what in needs)
    waived = {(canonicalize_name(who), canonicalize_name(what)) for who, what in pairs}
    code, output, errors = world.run(world.python, "-m", "pip", "check")
    said = output.decode(errors="replace")
    if code not in (0, 1) or (code and not said):
        raise Failed(f"pip check did not run: {said}{errors}")
    lines: list[str] = said.splitlines() if code else []
    found = {line: _pair(line) for line in lines}
    if new := [line for line in lines if line not in known and found[line] not in waived]:
        keys = [f" (key: pip_check.{'.'.join(found[line])})" if all(found[line]) else "" for line in new]
        raise Failed("\n".join(map("".join, zip(new, keys, strict=True))))
    world.notes += [f"waives nothing: pip_check.{who}.{what}" for who, what in sorted(waived - set(found.values()))]
    return f"{len(lines)} lines, all known"


def _pair(line: str) -> tuple[str, str]:
    found = PIP_CHECK.match(line)
    who, what = (found["who"], found["missing"] or found["unmet"]) if found else ("", "")
    return canonicalize_name(who), canonicalize_name(what)


def absent(_: World, check: dict[str, Any]) -> str:
    try:
        raise Failed(f"{check['distribution']} {metadata.version(check['distribution'])} is installed")
    except metadata.PackageNotFoundError:
        return "not installed"


def env(world: World, check: dict[str, Any]) -> str:
    name, wanted = check["variable"], check["value"]
    found = world.environment.get(name)
    if found != wanted:
        raise Failed(f"{name} is {found!r}, wanted {'absent' if wanted is None else repr(wanted)}")
    return "absent" if found is None else found


def env_read(_: World, check: dict[str, Any]) -> str:
    """Variables age: RAY_... has to stand in the source of the installed ray, VLLM_... in that of vllm."""
    read, idle = [], []
    for name in check["variables"]:
        for dist in metadata.distributions(name=name.partition("_")[0]):
            places = [path for path in dist.files or [] if not {"examples", "tests"} & set(path.parts)]
            files = [Path(str(dist.locate_file(path))) for path in places if path.suffix in (".py", ".so")]
            files.sort(key=lambda path: path.suffix != ".py")  # the large ones last
            if reader := next((path for path in files if path.is_file() and name.encode() in path.read_bytes()), None):
                read.append(f"{name}: {reader}")
            elif files:
                idle.append(f"{name}: {dist.metadata['Name']} {dist.version} has no such name")
    if idle:
        raise Failed("\n".join(idle))
    if not read:
        raise CouldNotRun("no variable begins with the name of an installed distribution")
    return "\n".join(read)


def config(world: World, check: dict[str, Any]) -> str:
    """What only a finished image has; whoever looks at it from outside writes it beside the list."""
    try:
        found = json.loads(world.listing.with_name("config.json").read_text("utf-8"))[check["key"]]
    except FileNotFoundError:
        raise CouldNotRun("only from outside is the image's configuration seen") from None
    wanted = (world.root / check["file"]).read_text().strip() if check["file"] else check["value"]
    if found != wanted:
        raise Failed(f"{check['key']} of the image is {found!r}, wanted {wanted!r}")
    return str(found)


def executable(_: World, check: dict[str, Any]) -> str:
    path = Path(str(metadata.distribution(check["distribution"]).locate_file(check["file"])))
    if not path.is_file() or not path.stat().st_mode & 0o111:
        raise Failed(f"{path} {'may not be executed' if path.is_file() else 'is not there'}")
    return str(path)


def import_module(world: World, check: dict[str, Any]) -> str:
    module, under = check["module"], check["under"]
    places = world.import_one(module)["places"]
    # A namespace package is searched place by place: one elsewhere may hide what the checkout has.
    if under and not (places and all(Path(place).resolve().is_relative_to(Path(under).resolve()) for place in places)):
        raise Failed(f"{module} comes from {', '.join(places) or 'no file'}, not only from {under}")
    return ", ".join(places) or "no file of its own"


def numpy_users(world: World, _: dict[str, Any]) -> str:
    modules = sorted({module for dist in metadata.distributions() if _needs_numpy(dist) for module in modules_of(dist)})
    tried = {module: found for module in modules for found in world.take([(module, None)]) if "error" in found}
    if tried:
        outcome = CouldNotRun if all(map(no_device, tried.values())) else Failed
        raise outcome("\n".join(f"{name}: {found['error']}" for name, found in tried.items()))
    return ", ".join(modules) or "none has compiled modules"


def _needs_numpy(dist: metadata.Distribution) -> bool:
    # Others' lines may be older than PEP 508.
    needs = [Requirement(line) for line in dist.requires or [] if re.match(r"numpy\b(?![-.])", line, re.IGNORECASE)]
    compiled = any(path.suffix == ".so" for path in dist.files or [])
    return compiled and any(not need.marker or need.marker.evaluate({"extra": ""}) for need in needs)


def loads(world: World, check: dict[str, Any]) -> str:
    names: list[Name] = [(name, None) for name in compiled_of(metadata.distribution(check["distribution"]))]
    found = {name: each for (name, _), each in zip(names, world.take(names), strict=True) if is_broken(each)}
    if found:
        outcome = CouldNotRun if all(map(no_device, found.values())) else Failed
        raise outcome("\n".join(f"{name}: {each['error']}" for name, each in found.items()))
    return ", ".join(name for name, _ in names) or "no compiled modules"


def one_copy(world: World, check: dict[str, Any]) -> str:
    """All in one new process, in this order: the state of one copy is not seen by who uses the other."""
    compiled = [name for each in check["distributions"] for name in compiled_of(metadata.distribution(each))]
    names: list[Name] = [(name, None) for name in dict.fromkeys([*check["modules"], *compiled])]
    said = world.bare.ask(names)
    if len(said["found"]) <= len(names):
        raise Failed(f"{names[len(said['found'])][0]}: {said['why']}")
    *found, last = said["found"]
    lines, several = [], False
    for library in check["libraries"]:
        places = [path for path in last["mapped"] if Path(path).name.partition(".so")[0] == library]
        several = several or len(places) > 1
        lines.append(f"{library}: {', '.join(places) or 'none of these modules loads it'}")
    faults = {name: each for (name, _), each in zip(names, found, strict=True) if is_broken(each)}
    lines += [f"{name}: {each['error']}" for name, each in faults.items()]
    if several or not all(map(no_device, faults.values())):
        raise Failed("\n".join(lines))
    if faults or any(line.endswith("loads it") for line in lines):
        raise CouldNotRun("\n".join(lines))
    return "\n".join(lines)


def device_code(world: World, check: dict[str, Any]) -> str:
    wanted = set((world.root / "gpu_targets").read_text().strip().split(";"))
    dist = metadata.distribution(check["distribution"])
    faults, unread = [], []
    for module in check["modules"]:
        places = [path for path in dist.files or [] if re.match(rf"{module}\.[^/]*so$", path.name)]
        faults += [] if places else [f"{dist.metadata['Name']} has no module {module}"]
        for path in places:
            line = f"{path}: wanted {', '.join(sorted(wanted))}, found"
            try:
                found = device.targets(Path(str(dist.locate_file(path))))
                faults += [f"{line} {', '.join(sorted(found)) or 'none'}"] if wanted - found else []
            except device.Unreadable as reason:
                unread.append(f"{line} code that cannot be read here: {reason}")
            except device.Torn as reason:
                faults.append(f"{line} something torn: {reason}")
    if faults or unread:
        raise (Failed if faults else CouldNotRun)("\n".join([*faults, *unread]))
    return f"{', '.join(sorted(wanted))} in {', '.join(check['modules'])}"


def api_window(world: World, check: dict[str, Any]) -> str:
    consumer = Path(world.read(f"sources/{check['consumer']}.json")["checkout"])
    roots = [place for package in check["packages"] for place in _import_roots(package)]
    folders, tried = [consumer / name for name in check["folders"]], dict[tuple[str, str | None], dict[str, Any]]()
    while True:
        failing = {name: found["error"] for name, found in tried.items() if "error" in found and not no_device(found)}
        window = imports.window(folders, check["packages"], roots, check["unused"], failing)
        if window.missing:
            raise Failed("\n".join([*window.missing, *window.notes]))
        names = {(use.module, use.name) for use in [*window.used, *window.unknown]}
        if not (new := sorted(names - set(tried), key=str)):
            break  # all are there, or an alternative is
        tried |= zip(new, world.take(new), strict=True)
    if untried := [f"{module}.{name}: {tried[module, name]['error']}" for module, name in sorted(names, key=str)
                   if "error" in tried[module, name]]:
        raise CouldNotRun("\n".join(["found in the source, but its import asks for a device:", *untried]))
    world.notes += window.notes
    idle = world.idle[check["consumer"]] = world.idle.get(check["consumer"], set(check["unused"])) & window.idle
    world.notes += [f"waives nothing: {pattern}" for pattern in sorted(idle) if check["last"]]
    return f"{len(names)} names"


def _import_roots(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise Failed(f"{package} is not installed")
    return [Path(place).parent for place in spec.submodule_search_locations or [str(spec.origin)]]


def proof(world: World, check: dict[str, Any]) -> str:
    """A patch's own program ends well where the patch does what it is for."""
    return _ended_well(*world.run(world.python, "-c", check["program"]))


def tests(world: World, check: dict[str, Any]) -> str:
    """A test file of the source itself, run in its checkout."""
    if importlib.util.find_spec("pytest") is None:
        raise CouldNotRun("no pytest is installed")
    checkout = world.read(f"sources/{check['source']}.json")["checkout"]
    options = ("-q", "-p", "no:cacheprovider", check["file"])
    return _ended_well(*world.run(world.python, "-m", "pytest", *options, folder=checkout))


def _ended_well(code: int, output: bytes, errors: str) -> str:
    said = "\n".join([output.decode("utf-8", "replace"), errors]).strip().splitlines()[-20:]
    if code:
        found = {"error": "\n".join(said) or f"exit code {code}", "tried": False}
        raise (CouldNotRun if no_device(found) else Failed)(found["error"])
    return said[-1] if said else "it does"


KINDS = {
    "absent": absent, "api_window": api_window, "config": config, "device_code": device_code, "env": env,
    "env_read": env_read, "executable": executable, "import": import_module, "loads": loads, "numpy_users": numpy_users,
    "one_copy": one_copy, "owners": owners, "pip_check": pip_check, "proof": proof, "seal": seal_holds,
    "source": source, "tests": tests, "torch_rocm": torch_rocm, "version": version,
}
