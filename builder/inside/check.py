"""Run the one list of checks: in the build, after it, and on a GPU host; passed, failed, or could not run."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import imports
import seal
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version

TIME_LIMIT_S = 120
OUTCOMES = PASSED, FAILED, COULD_NOT_RUN = "passed", "failed", "could not run"
# How libraries say that there is no device; an import that fails for that was not tried.
NO_DEVICE = re.compile(r"no (hip|rocm|cuda)[- ](gpus?|capable|devices?)|hipErrorNoDevice|/dev/kfd", re.IGNORECASE)
BUNDLE = re.compile(rb"hipv4-amdgcn-amd-amdhsa--(gfx[0-9a-f]+)")
LEFTOVERS = re.compile(r"(^|/)(build|dist|__pycache__|[^/]+\.egg-info)/|\.(so|pyc)$")
PIP_CHECK = re.compile(r"^(?P<who>\S+) \S+ (requires (?P<missing>[^,\s]+), which|has requirement (?P<unmet>[\w.-]+))")
# Take each name as a consumer does, and say how that went; what modules print stays apart from it.
TRY = """
import importlib, json, os, sys, types
say = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.path = [place for place in sys.path if place]
for module, name in json.loads(sys.argv[1]):
    try:
        found = importlib.import_module(module)
        for part in name.split(".") if name else ():
            if not isinstance(found, types.ModuleType):
                break
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(found.__name__ + "." + part)
        place = getattr(found, "__file__", None)
        said = {"text": str(found), "places": [place] if place else [*map(str, getattr(found, "__path__", ()))]}
    except BaseException as error:
        said = {"error": type(error).__name__ + ": " + str(error), "tried": isinstance(error, ImportError)}
    print(json.dumps(said), file=say, flush=True)
"""


class Failed(Exception):  # noqa: N818 - an outcome, not an error
    """The check ran, and the image is not as promised."""


class CouldNotRun(Exception):  # noqa: N818 - an outcome, not an error
    """The check could not be tried here, and why."""


class World:
    """What the checks look at: the image's own files, and the list's interpreter."""

    def __init__(self, root: Path, python: str) -> None:
        self.root, self.python = root, python

    def read(self, name: str) -> Any:
        return json.loads((self.root / name).read_text("utf-8"))

    def run(self, *command: str) -> tuple[int, bytes, str]:
        """Run a program from / that can hang or crash without taking the others along: exit code, output, errors."""
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "GIT_OPTIONAL_LOCKS": "0"}
        with subprocess.Popen(command, cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, start_new_session=True) as child:
            try:
                output, errors = child.communicate(timeout=TIME_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)  # with all that it has started
                raise Failed(f"did not end within {TIME_LIMIT_S} s") from None
        return child.returncode, output, errors.decode(errors="replace").strip()

    def take(self, names: list[tuple[str, str | None]]) -> list[dict[str, Any]]:
        """What became of importing each module and taking the name from it; a crash costs one name."""
        found: list[dict[str, Any]] = []
        while len(found) < len(names):
            try:
                code, output, errors = self.run(self.python, "-c", TRY, json.dumps(names[len(found):]))
                why = f"exit code {code}, {(errors.splitlines() or ['no message'])[-1]}"
            except Failed as failed:
                output, why = b"", str(failed)
            found += map(json.loads, output.splitlines())
            found += [{"error": why, "tried": True}] if len(found) < len(names) else []
        return found

    def import_one(self, module: str, name: str | None = None) -> dict[str, Any]:
        (found,) = self.take([(module, name)])
        if "error" in found:
            raise (CouldNotRun if no_device(found) else Failed)(found["error"])
        return found


def no_device(found: dict[str, Any]) -> bool:
    return not found["tried"] and bool(NO_DEVICE.search(found["error"]))


def torch_rocm(world: World, _: dict[str, Any]) -> str:
    fields = ("__version__", "version.hip", "version.cuda")
    version, hip, cuda = (world.import_one("torch", name)["text"] for name in fields)
    if hip == "None" or cuda != "None":
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
        return output

    if (head := git("rev-parse", "HEAD").decode().strip()) != record["commit"]:
        raise Failed(f"{record['checkout']} is at {head}, its record says {record['commit']}")
    if hashlib.sha256(git("diff", "HEAD")).hexdigest() != record["diff_sha256"]:
        names = git("diff", "--name-only", "HEAD").decode().split()
        raise Failed(f"changed since it was patched; files that differ from the commit: {', '.join(names) or 'none'}")
    listed = git("ls-files", "--others", "--exclude-standard").decode().splitlines()
    if strange := [name for name in listed if not LEFTOVERS.search(name)]:
        raise Failed(f"files that are in no commit: {', '.join(strange[:5])}")
    return title


def version(world: World, check: dict[str, Any]) -> str:
    record = world.read(f"sources/{check['source']}.json")
    found, wanted = metadata.version(record["distribution"]), record["tag"].removeprefix("v")
    if Version(found).public != Version(wanted).public:
        raise Failed(f"{record['distribution']} {found} is installed, the tag is {record['tag']}")
    return f"{record['distribution']} {found}, the tag is {record['tag']}"


def pip_check(world: World, check: dict[str, Any]) -> str:
    known = set(world.read("seal.json")["pip_check"])
    pairs = ((who, what) for who, needs in check["waived"].items() for what in needs)
    waived = {(canonicalize_name(who), canonicalize_name(what)) for who, what in pairs}
    code, output, errors = world.run(world.python, "-m", "pip", "check")
    if code and not output:
        raise Failed(f"pip check did not run: {errors}")
    lines: list[str] = output.decode().splitlines() if code else []
    found = {line: _pair(line) for line in lines}
    if new := [line for line in lines if line not in known and found[line] not in waived]:
        keys = [f" (key: pip_check.{'.'.join(found[line])})" if all(found[line]) else "" for line in new]
        raise Failed("\n".join(map("".join, zip(new, keys, strict=True))))
    idle = sorted(f"{who}: {what}" for who, what in waived - set(found.values()))
    return f"{len(lines)} lines, all known" + (f"; waived and not there: {', '.join(idle)}" if idle else "")


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
    _, output, errors = world.run(world.python, "-c", f"import json, os; print(json.dumps(os.environ.get({name!r})))")
    found = json.loads(output.splitlines()[-1] if output else errors)
    if found != wanted:
        raise Failed(f"{name} is {found!r}, wanted {'absent' if wanted is None else repr(wanted)}")
    return "absent" if found is None else str(found)


def import_module(world: World, check: dict[str, Any]) -> str:
    module, under = check["module"], check["under"]
    places = world.import_one(module)["places"]
    # A namespace package is searched place by place: one elsewhere may hide what the checkout has.
    if under and not (places and all(Path(place).resolve().is_relative_to(Path(under).resolve()) for place in places)):
        raise Failed(f"{module} comes from {', '.join(places) or 'no file'}, not only from {under}")
    return ", ".join(places) or "no file of its own"


def numpy_users(world: World, _: dict[str, Any]) -> str:
    modules = sorted({module for dist in metadata.distributions() if _needs_numpy(dist) for module in _modules(dist)})
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


def _modules(dist: metadata.Distribution) -> set[str]:
    """The top-level packages and modules of a distribution, compiled ones too."""
    parts = (path.parts for path in dist.files or [] if path.suffix in (".py", ".so"))
    names = {first.partition(".")[0] for first, *rest in parts if rest in ([], ["__init__.py"])}
    return {name for name in names if name.isidentifier()}


def device_code(world: World, check: dict[str, Any]) -> str:
    record = world.read(f"sources/{check['source']}.json")
    wanted = set((world.root / "gpu_targets").read_text().strip().split(";"))
    dist = metadata.distribution(record["distribution"])
    faults = []
    for module in check["modules"]:
        places = [path for path in dist.files or [] if re.match(rf"{module}\.[^/]*so$", path.name)]
        faults += [] if places else [f"{record['distribution']} has no module {module}"]
        for path in places:
            found = sorted(set(map(bytes.decode, BUNDLE.findall(Path(str(dist.locate_file(path))).read_bytes()))))
            if wanted - set(found):
                faults.append(f"{path}: wanted {', '.join(sorted(wanted))}, found {', '.join(found) or 'none'}")
    if faults:
        raise Failed("\n".join(faults))
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
    return "\n".join([f"{len(names)} names", *window.notes])


def _import_roots(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise Failed(f"{package} is not installed")
    return [Path(place).parent for place in spec.submodule_search_locations or [str(spec.origin)]]


KINDS = {
    "absent": absent, "api_window": api_window, "device_code": device_code, "env": env, "import": import_module,
    "numpy_users": numpy_users, "owners": owners, "pip_check": pip_check, "seal": seal_holds, "source": source,
    "torch_rocm": torch_rocm, "version": version,
}


def outcome(world: World, check: dict[str, Any]) -> dict[str, Any]:
    """Run one check; whatever happens in it is its own outcome."""
    started, found, detail = time.monotonic(), PASSED, ""
    try:
        if check["kind"] not in KINDS:
            raise Failed(f"no such kind of check: {check['kind']!r}")  # noqa: TRY301 - an outcome like the others
        detail = KINDS[check["kind"]](world, check)
    except Failed as failed:
        found, detail = FAILED, str(failed)
    except CouldNotRun as reason:
        found, detail = COULD_NOT_RUN, str(reason)
    except Exception as error:  # noqa: BLE001 - a check that breaks has failed, the others go on
        found, detail = FAILED, f"{type(error).__name__}: {error}"
    detail = detail.encode(errors="backslashreplace").decode()  # what a library says need not be text
    return {**{key: check.get(key) for key in ("name", "kind", "hint")}, "outcome": found, "detail": detail,
            "seconds": round(time.monotonic() - started, 3)}


def digests(listing: Path) -> dict[str, str]:
    """What a result belongs to: these programs and this list."""
    programs = b"".join(Path(path).read_bytes() for path in (__file__, imports.__file__, seal.__file__))
    return {"program_sha256": hashlib.sha256(programs).hexdigest(),
            "list_sha256": hashlib.sha256(listing.read_bytes()).hexdigest()}


def counted(checks: list[dict[str, Any]]) -> dict[str, int]:
    return {name.replace(" ", "_"): sum(check["outcome"] == name for check in checks) for name in OUTCOMES}


def run(listing: Path, root: Path, nonce: str | None, output: Path | None) -> int:
    """Run the whole list and show it; the exit code says whether anything failed."""
    try:
        wanted = json.loads(listing.read_text("utf-8"))
        world, named = World(root, wanted["python"]), {check["name"]: check["hint"] for check in wanted["checks"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"verification did not run: {listing}: {type(error).__name__}: {error}")
    if not named or len(named) < len(wanted["checks"]):
        sys.exit(f"verification did not run: {'two checks have one name' if named else 'the list is empty'}")
    checks = [outcome(world, check) for check in wanted["checks"]]
    counts = counted(checks)
    result = {"schema": 1, **digests(listing), "nonce": nonce, "counts": counts, "checks": checks}
    print("checks: {passed} passed, {failed} failed, {could_not_run} could not run".format(**counts))
    for check in checks:
        shown = [] if check["outcome"] == PASSED else check["detail"].splitlines()
        shown += [f"hint: {check['hint']}"] if check["outcome"] == FAILED else []
        print(f"{check['outcome']:<14}{check['name']}", *shown, sep=f"\n{'':<16}")
    if nonce:
        print(f"{nonce}{json.dumps(result)}")
    if output:
        unfinished = output.with_name(f"{output.name}.new")
        unfinished.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(output)
    return 1 if counts["failed"] else 0


def prove(listing: Path, root: Path) -> str | None:
    """Why the image's own result proves nothing, if so."""
    try:
        result = json.loads((root / "verification.json").read_text("utf-8"))
        names = [check["name"] for check in json.loads(listing.read_text("utf-8"))["checks"]]
        if {key: result[key] for key in digests(listing)} != digests(listing):
            return "its result belongs to another program or another list"
        if [check["name"] for check in result["checks"]] != names or not names:
            return "its result does not name the checks of the list"
        failed = [check["name"] for check in result["checks"] if check["outcome"] not in (PASSED, COULD_NOT_RUN)]
        if not failed and result["counts"] != counted(result["checks"]):
            return "its counts are not those of its checks"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return f"failed: {', '.join(failed)}" if failed else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("run", "proof"))
    parser.add_argument("list", type=Path)
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--nonce")
    given = parser.parse_args()
    if given.command == "run":
        sys.exit(run(given.list, given.root, given.nonce, given.output))
    if why := prove(given.list, given.root):
        sys.exit(f"verification did not run: {why}")
    print("verification ran, and nothing failed")


if __name__ == "__main__":
    main()
