"""Run the one list of checks: in the build, after it, and on a GPU host; passed, failed, or could not run."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import imports
import seal
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version

TIME_LIMIT_S = 120
PASSED, FAILED, COULD_NOT_RUN = "passed", "failed", "could not run"
# How libraries say that there is no device; an import that fails for that was not tried.
NO_DEVICE = re.compile(r"no (hip|rocm|cuda)[- ](gpus?|capable|devices?)|hipErrorNoDevice|/dev/kfd", re.IGNORECASE)
BUNDLE = re.compile(rb"hipv4-amdgcn-amd-amdhsa--(gfx[0-9a-f]+)")
LEFTOVERS = re.compile(r"(^|/)(build|dist|__pycache__|[^/]+\.egg-info)/|\.(so|pyc)$")
PIP_CHECK = re.compile(r"^(?P<who>\S+) \S+ (requires (?P<missing>[^,\s]+), which|has requirement (?P<unmet>[\w.-]+))")
# Take each name as the consumer does; print those that cannot be had.
CONFIRM = """
import importlib, functools
for module, name in {names!r}:
    try:
        found = importlib.import_module(module)
        for part in (name or "").split(".") if name else []:
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(found.__name__ + "." + part)
    except Exception as error:
        print(module, name, type(error).__name__, error)
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

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program from / that can hang or crash without taking the others along."""
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "GIT_OPTIONAL_LOCKS": "0"}
        try:
            return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True,
                                  errors="replace", timeout=TIME_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"{command[-1][:80]!r} did not end within {TIME_LIMIT_S} s") from None

    def python_prints(self, program: str) -> list[str]:
        """The lines that a program prints in an interpreter of its own."""
        done = self.run(self.python, "-c", program)
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}, no message"]
            raise (CouldNotRun if NO_DEVICE.search(said[-1]) else Failed)(said[-1])
        return done.stdout.splitlines()


def torch_rocm(world: World, _: dict[str, Any]) -> str:
    program = "import torch; print(torch.__version__, torch.version.hip, torch.version.cuda, sep='\\n')"
    version, hip, cuda = world.python_prints(program)[-3:]
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
    git = ("git", "-c", "safe.directory=*", "-C", record["checkout"])
    head = world.run(*git, "rev-parse", "HEAD").stdout.strip()
    if head != record["commit"]:
        raise Failed(f"{record['checkout']} is at {head or 'no commit'}, its record says {record['commit']}")
    diff = subprocess.run([*git, "diff", "HEAD"], capture_output=True, check=True).stdout
    if hashlib.sha256(diff).hexdigest() != record["diff_sha256"]:
        names = world.run(*git, "diff", "--name-only", "HEAD").stdout.split()
        raise Failed(f"changed since it was patched; files that differ from the commit: {', '.join(names) or 'none'}")
    listed = world.run(*git, "ls-files", "--others", "--exclude-standard").stdout.splitlines()
    if strange := [name for name in listed if not LEFTOVERS.search(name)]:
        raise Failed(f"files that are in no commit: {', '.join(strange[:5])}")
    return title


def version(world: World, check: dict[str, Any]) -> str:
    record = world.read(f"sources/{check['source']}.json")
    found, wanted = metadata.version(record["distribution"]), record["tag"].removeprefix("v")
    if Version(found).public != Version(wanted).public:
        raise Failed(f"{record['distribution']} {found} is installed, the tag is {record['tag']}")
    return f"{record['distribution']} {found}"


def pip_check(world: World, check: dict[str, Any]) -> str:
    known = set(world.read("seal.json")["pip_check"])
    pairs = ((who, what) for who, needs in check["waived"].items() for what in needs)
    waived = {(canonicalize_name(who), canonicalize_name(what)) for who, what in pairs}
    done = world.run(world.python, "-m", "pip", "check")
    if done.returncode and not done.stdout:
        raise Failed(f"pip check did not run: {done.stderr.strip()}")
    lines = done.stdout.splitlines() if done.returncode else []
    found = {line: _pair(line) for line in lines}
    if new := [line for line, pair in found.items() if line not in known and pair not in waived]:
        raise Failed("\n".join(new))
    idle = sorted(f"{who}: {what}" for who, what in waived - set(found.values()))
    return f"{len(lines)} lines, all known" + (f"; waived and not there: {', '.join(idle)}" if idle else "")


def _pair(line: str) -> tuple[str, str]:
    found = PIP_CHECK.match(line)
    if not found:
        return "", line
    return canonicalize_name(found["who"]), canonicalize_name(found["missing"] or found["unmet"])


def absent(_: World, check: dict[str, Any]) -> str:
    try:
        raise Failed(f"{check['distribution']} {metadata.version(check['distribution'])} is installed")
    except metadata.PackageNotFoundError:
        return "not installed"


def env(world: World, check: dict[str, Any]) -> str:
    name, wanted = check["variable"], check["value"]
    found = json.loads(world.python_prints(f"import json, os; print(json.dumps(os.environ.get({name!r})))")[-1])
    if found != wanted:
        raise Failed(f"{name} is {found!r}, wanted {'absent' if wanted is None else repr(wanted)}")
    return "absent" if found is None else found


def import_module(world: World, check: dict[str, Any]) -> str:
    module, under = check["module"], check["under"]
    program = f"import {module} as m; print(*([m.__file__] if getattr(m, '__file__', None) else m.__path__), sep='\\n')"
    places = world.python_prints(program)
    if under and not any(Path(place).is_relative_to(under) for place in places):
        raise Failed(f"{module} comes from {', '.join(places)}, not from {under}")
    return places[-1]


def numpy_users(world: World, _: dict[str, Any]) -> str:
    modules = sorted({module for dist in metadata.distributions() if _needs_numpy(dist) for module in _modules(dist)})
    said = [line for module in modules if (line := _import_error(world, module))]
    if said:
        raise Failed("\n".join(said))
    return ", ".join(modules) or "none has compiled modules"


def _needs_numpy(dist: metadata.Distribution) -> bool:
    requires = any(re.match(r"numpy\b", line) and "extra ==" not in line for line in dist.requires or [])
    return requires and any(path.suffix == ".so" for path in dist.files or [])


def _modules(dist: metadata.Distribution) -> set[str]:
    parts = (path.parts for path in dist.files or [] if path.suffix == ".py")
    return {first for first, *rest in parts if rest == ["__init__.py"] and first.isidentifier()}


def _import_error(world: World, module: str) -> str | None:
    try:
        world.python_prints(f"import {module}")
    except Failed as failed:
        return f"{module}: {failed}"
    except CouldNotRun:
        return None
    return None


def device_code(world: World, check: dict[str, Any]) -> str:
    record = world.read(f"sources/{check['source']}.json")
    wanted = set((world.root / "gpu_targets").read_text().strip().split(";"))
    dist = metadata.distribution(record["distribution"])
    faults, files = [], []
    for module in check["modules"]:
        places = [path for path in dist.files or [] if re.match(rf"{module}\.[^/]*so$", path.name)]
        faults += [] if places else [f"{record['distribution']} has no module {module}"]
        files += places
    for path in files:
        found = {target.decode() for target in BUNDLE.findall(Path(str(dist.locate_file(path))).read_bytes())}
        if wanted - found:
            faults.append(f"{path}: wanted {', '.join(sorted(wanted))}, found {', '.join(sorted(found)) or 'none'}")
    if faults:
        raise Failed("\n".join(faults))
    return f"{', '.join(sorted(wanted))} in {', '.join(check['modules'])}"


def api_window(world: World, check: dict[str, Any]) -> str:
    consumer = Path(world.read(f"sources/{check['consumer']}.json")["checkout"])
    roots = [place for package in check["packages"] for place in _import_roots(package)]
    found = imports.window([consumer / name for name in check["folders"]], check["packages"], roots, check["unused"])
    if found.missing:
        raise Failed("\n".join([*found.missing, *found.notes]))
    names = sorted({(use.module, use.name) for use in [*found.used, *found.unknown]}, key=str)
    for line in world.python_prints(CONFIRM.format(names=names)):
        raise (CouldNotRun if NO_DEVICE.search(line) else Failed)(f"found in the source, but its import fails: {line}")
    return "\n".join([f"{len(names)} names", *found.notes])


def _import_roots(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise Failed(f"{package} is not installed")
    return [Path(place).parent for place in spec.submodule_search_locations or []]


def unknown(_: World, check: dict[str, Any]) -> str:
    raise Failed(f"no such kind of check: {check['kind']!r}")


KINDS = {
    "absent": absent,
    "api_window": api_window,
    "device_code": device_code,
    "env": env,
    "import": import_module,
    "numpy_users": numpy_users,
    "owners": owners,
    "pip_check": pip_check,
    "seal": seal_holds,
    "source": source,
    "torch_rocm": torch_rocm,
    "version": version,
}


def outcome(world: World, check: dict[str, Any]) -> dict[str, Any]:
    """Run one check; whatever happens in it is its own outcome."""
    started, found, detail = time.monotonic(), PASSED, ""
    try:
        detail = KINDS.get(check["kind"], unknown)(world, check)
    except Failed as failed:
        found, detail = FAILED, str(failed)
    except CouldNotRun as reason:
        found, detail = COULD_NOT_RUN, str(reason)
    except Exception as error:  # noqa: BLE001 - a check that breaks has failed, the others go on
        found, detail = FAILED, f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - started, 3)
    return {"name": check["name"], "kind": check["kind"], "outcome": found, "detail": detail,
            "hint": check["hint"], "seconds": seconds}


def digests(listing: Path) -> dict[str, str]:
    """What a result belongs to: these programs and this list."""
    programs = b"".join(Path(path).read_bytes() for path in (__file__, imports.__file__, seal.__file__))
    return {"program_sha256": hashlib.sha256(programs).hexdigest(),
            "list_sha256": hashlib.sha256(listing.read_bytes()).hexdigest()}


def run(listing: Path, root: Path, nonce: str | None, output: Path | None) -> int:
    """Run the whole list and show it; the exit code says whether anything failed."""
    wanted = json.loads(listing.read_text("utf-8"))
    if not wanted["checks"]:
        sys.exit("verification did not run: the list is empty")
    world = World(root, wanted["python"])
    checks = [outcome(world, check) for check in wanted["checks"]]
    names = [check["outcome"] for check in checks]
    counts = {"passed": names.count(PASSED), "failed": names.count(FAILED), "could_not_run": names.count(COULD_NOT_RUN)}
    result = {"schema": 1, **digests(listing), "nonce": nonce, "counts": counts, "checks": checks}
    print("checks: {passed} passed, {failed} failed, {could_not_run} could not run".format(**counts))
    for check in checks:
        shown = check["detail"].splitlines() if check["outcome"] != PASSED else []
        hint = [f"hint: {check['hint']}"] if check["outcome"] == FAILED else []
        print(f"{check['outcome']:<14}{check['name']}", *shown, *hint, sep=f"\n{'':<16}")
    if nonce:
        print(f"{nonce}{json.dumps(result)}")
    if output:
        output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
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
