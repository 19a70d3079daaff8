"""Judge what pip would install, refuse what breaks the base, then install exactly the rest."""

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pip import __version__ as pip_version
from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
from pip._vendor.packaging.specifiers import SpecifierSet
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version

if TYPE_CHECKING:
    from installer import Uv

# How pip reaches packages is the machine's affair, and kept; how it talks is of no matter. All else is the policy's:
# the machine's word on what pip chooses and where it puts it is not heard, also by options that a later pip has.
TRANSPORT = (
    "cache-dir", "cert", "client-cert", "default-timeout", "find-links", "index-url", "keyring-provider",
    "no-cache-dir", "no-index", "no-proxy-env", "proxy", "resume-retries", "retries", "timeout", "trusted-host",
)
MANNER = (
    "config-file", "disable-pip-version-check", "log", "no-color", "no-input", "no-python-version-warning",
    "no-warn-conflicts", "no-warn-script-location", "progress-bar", "quiet", "root-user-action", "verbose",
)
# Of the rest, the ones that take a sealed name from elsewhere, or once more, are no matter of taste.
REOPENING = ("extra-index-url", "force-reinstall", "ignore-installed")
FAMILY = ("pytorch-triton-rocm", "torch", "torchaudio", "torchvision", "triton", "triton-rocm")
KINDS = {"vcs_info": "a repository", "dir_info": "a path", "archive_info": "an address"}
OLDEST = Version("22.2")
GIT = re.compile(r"\bgit\+(?P<address>[^\s@]+(?:@[^\s/]+/[^\s@]+)?)(?:@(?P<commit>[^\s#;]+))?")
PATH = re.compile(r"(?:-e|--editable)\b|\.{0,2}/|\.$|file:|[^\s@]+ *@ *(?:file:|\.{0,2}/)")
# What stands before a path below site-packages: in a wheel, and in what it has unpacked to.
INTO_SITE = re.compile(r"^(?:[^/]+\.data/(?:(?:pure|plat)lib/|data/))?(?:lib\d*/python[^/]+/[^/]+-packages/)?")
TAIL = 12  # lines of pip's own message that are shown
Ask = tuple[Requirement, str]  # a requirement, and who asks for it


class Fault(Exception):  # noqa: N818 - the word of the messages
    """Everything that is wrong, a line each."""


class Item(NamedTuple):
    """One distribution that pip would install."""

    name: str
    version: str
    url: str  # without credentials
    sha256: str
    requires: list[Requirement]
    address: str = ""  # what kind of address it comes from, where that is no index


def refuse(faults: list[str]) -> None:
    if faults:
        raise Fault(*faults)


def name_of(requirement: Requirement) -> str:
    return str(canonicalize_name(requirement.name))


read_requirement = cache(Requirement)  # the same few lines return all over a plan, and reading one is slow


def requirements(dist: metadata.Distribution) -> list[Requirement]:
    found = []
    for text in dist.requires or []:
        try:
            found.append(read_requirement(text))
        except InvalidRequirement as error:  # noqa: PERF203 - the line has to be named
            told = f"{dist.metadata['Name']} {dist.version} is installed, and asks for what nobody can read: {text!r}"
            raise Fault(told) from error
    return found


def parse(line: str) -> Requirement | None:
    """Read a requirement that an index can answer; an address or a path is none."""
    try:
        return None if (need := Requirement(line)).url else need
    except InvalidRequirement:
        return None


def applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return not marker or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def installed(name: str) -> metadata.Distribution | None:
    return next(iter(metadata.distributions(name=name)), None)


def flatten(path: Path, root: Path, seen: tuple[Path, ...] = ()) -> tuple[list[Ask], list[str]]:
    """Read a requirement file and those that it includes: its lines, and what is refused of them."""
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    if path in seen or not path.is_file():
        return [], [f"{shown}: {'includes itself' if path in seen else 'no such file'}"]
    asked: list[Ask] = []
    faults: list[str] = []
    text = ""
    for number, raw in enumerate([*path.read_text("utf-8-sig").splitlines(), ""], 1):
        text += re.sub(r"(^|\s)#.*$", "", raw)
        if text.endswith("\\"):
            text = text[:-1]
            continue
        line, text, place = text.strip(), "", f"{shown}:{number}"
        if include := re.fullmatch(r"(?:-r|--requirement)[\s=]*(\S+)", line):
            more = flatten(Path(os.path.normpath(path.parent / include[1])), root, (*seen, path))
            asked, faults = asked + more[0], faults + more[1]
        elif told := next(filter(None, (rule(line, root) for rule in LINES)), ""):
            faults.append(f"{place}: {told}")
        elif need := parse(line):
            asked.append((need, place))
    return asked, faults


def an_option(line: str, _: Path) -> str:
    found = re.search(r"(?:^|\s)-", line) and not re.match(r"(?:-e|--editable)\b", line)
    return f"option {line!r}: a requirement file may only name distributions" if found else ""


def a_repository(line: str, root: Path) -> str:
    """A line that names a repository is satisfied by a source of that commit, and by nothing else."""
    if not (found := GIT.search(line)):
        return ""
    bare = urlsplit(found["address"].partition("#")[0])
    address = bare._replace(netloc=bare.netloc.rpartition("@")[2]).geturl().rstrip("/").removesuffix(".git")
    for source in [json.loads(path.read_text("utf-8")) for path in sorted((root / "sources").glob("*.json"))]:
        if source["repository"].rstrip("/").removesuffix(".git") == address:
            same = source["commit"] == found["commit"] and installed(source["distribution"])
            told = f"{line!r}: sources.{source['name']} has {source['commit']}; leave it to that source"
            return "" if same else told
    return f"{line!r} is a repository: its code would run unjudged; make it a source (sources), with its commit"


def a_path(line: str, _: Path) -> str:
    found = None if GIT.search(line) else PATH.match(line)
    return f"{line!r} is a path: a tree is installed by the recipe of its source (sources)" if found else ""


def an_address(line: str, _: Path) -> str:
    """Whatever else is no name with a version."""
    known = not line or parse(line) or GIT.search(line)
    return "" if known else f"{line!r} is no name with a version: paths and addresses have no hash"


def pip(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run pip where nothing can be imported by accident; its exit code and all that it says."""
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], cwd="/", env=environment, text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def pip_environment() -> tuple[dict[str, str], list[str]]:
    """Make pip's environment of the machine's transport; the names of what is not heard come second."""
    loud = {key: value for key, value in os.environ.items() if key not in ("PIP_QUIET", "PIP_LOG")}
    code, listed = pip("config", "list", "-vvv", environment=loud)  # a quiet pip would list nothing
    refuse([f"pip's configuration cannot be read: {listed}"] * (code > 0))
    rows = re.findall(r"^(global|install|:env:)\.([\w-]+)=(.*)$", listed, re.MULTILINE)
    rows.sort(key=lambda row: ("global", "install", ":env:").index(row[0]))  # later ones win
    given = {key: str(ast.literal_eval(value)) for _, key, value in rows}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    kept |= {f"PIP_{key.upper().replace('-', '_')}": given[key] for key in given if key in TRANSPORT}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    on = [key for key in given if given[key].lower() not in ("", "0", "false", "no", "off")]
    on = [key for key in on if key not in TRANSPORT + MANNER]
    return kept, on + [key for key in os.environ if key.startswith("UV_")]


def read_plan(path: Path) -> list[Item]:
    """Read pip's report; whatever is not fully understood is refused."""
    try:
        report = json.loads(path.read_text("utf-8"))
        known = report["version"] in ("0", "1") and isinstance(report["install"], list)
        refuse([f"pip's report cannot be judged: version {report['version']!r}"] * (not known))
        return [read_item(entry["metadata"], entry["download_info"], entry["is_direct"]) for entry in report["install"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"pip's report cannot be judged: {type(error).__name__}: {error}") from error


def read_item(about: dict[str, Any], source: dict[str, Any], direct: bool) -> Item:  # noqa: FBT001 - the report's
    """Read one entry of a report; pip before 23.1 writes `hash`, later ones `hashes`."""
    url, kind = urlsplit(source["url"]), next((key for key in KINDS if key in source), "")
    address = KINDS[kind] if direct or kind != "archive_info" else ""
    archive = source.get("archive_info", {})
    sha256 = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    if kind == "archive_info" and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError(f"no sha256 for {about['name']}")
    bare = url._replace(netloc=url.netloc.rpartition("@")[2], fragment="").geturl()
    needs = [read_requirement(text) for text in about.get("requires_dist", [])]
    name = str(canonicalize_name(about["name"]))
    return Item(name, about["version"], bare, sha256, needs, address)


def asks(lines: list[Ask], plan: list[Item]) -> list[Ask]:
    """List every requirement met on the way down from the lines, with who asks for it; nearest first."""
    planned = {item.name: (item.version, item.requires) for item in plan}
    queue = [(need, f"{place} asks for {need}") for need, place in lines if applies(need, set())]
    seen = set()
    for need, chain in queue:  # grows while it is read
        name = name_of(need)
        if (name, *sorted(need.extras)) in seen:
            continue
        seen.add((name, *sorted(need.extras)))
        dist = installed(name)
        there = (dist.version, requirements(dist)) if dist else ("", [])
        version, children = planned.get(name, there)
        children = [child for child in children if applies(child, need.extras)]
        queue += [(child, f"{name} {version} asks for {child}, {chain}") for child in children]
    return queue


class Judge:
    """The policy, a step's own rules, and the seal that it may not break."""

    def __init__(self, root: Path, step: str, scratch: Path) -> None:
        self.root, self.step, self.scratch = root, step, scratch
        self.policy = json.loads((root / "policy.json").read_text("utf-8"))
        self.rules = json.loads((root / "sets" / f"{step}.json").read_text("utf-8"))
        self.seal = json.loads((root / "seal.json").read_text("utf-8"))
        self.sealed = self.seal["distributions"]
        self.environment, self.unheard = pip_environment()
        here, project = self.rules["where"], canonicalize_name(self.rules["project"])
        self.overrides = {str(canonicalize_name(name)): {**rule, "version": f"=={rule['version']}"}
                          for name, rule in self.policy["overrides"].items()}
        # What is not free: version, who holds it, where the manifest says so. The seal comes last and wins.
        self.held: dict[str, list[str]] = {}
        for name, rule in {**self.policy["constraints"], **self.overrides}.items():
            text = f"the manifest holds {name}{rule['version']}"
            self.held[str(canonicalize_name(name))] = [rule["version"], text, here, rule["where"]]
        lock = self.policy["manifest"].replace(".yaml", ".lock")
        for name, version in self.policy["locked"].items():
            self.held[name] = [f"=={version}", f"{lock} has {name} {version}", here, f"delete {lock}"]
        for name, rule in self.sealed.items():
            self.held[name] = [f"=={rule['version']}", f"the base has {name} {rule['version']}", here]
        self.held.pop(project, None)  # a constraint on what the step's own source is makes its paths impossible
        self.constraints = scratch / "constraints.txt"
        self.constraints.write_text("".join(f"{name}{held[0]}\n" for name, held in self.held.items()), "utf-8")

    def change(self, chain: str, *places: str) -> str:
        """Say what to change, and the line to write there where a requirement may be left out."""
        root = parse(chain.rpartition(" asks for ")[2]) if " asks for " in chain else None
        text = f"\n    change {self.policy['manifest']}, {' or '.join(places)}"
        without = f"\n    such as without: {{{root.name}: {{reason: ...}}}}" if root else ""
        return text + without * (self.rules["where"] in places)

    def lines(self) -> tuple[list[Ask], list[Ask]]:
        """Read what the step asks for: its overrides at their versions, and the rest."""
        lines, faults = flatten(self.root / self.rules["file"], self.root) if self.rules["file"] else ([], [])
        refuse(faults)
        without = {canonicalize_name(name) for name in self.rules["without"]}
        added = f"{self.policy['manifest']}, {self.rules['where']}"
        lines += [(Requirement(text), added) for text in self.rules["add"]]
        exact, rest = [], []
        for need, place in lines:
            name = name_of(need)
            if name not in {*without, *self.overrides}:
                rest.append((need, place))
            elif name not in without and applies(need, set()):
                exact.append((Requirement(name + self.overrides[name]["version"]), place))
        return exact, rest

    def pip(self, command: str, lines: list[str], *options: str, bound: bool = True, built: bool = False) \
            -> tuple[int, str]:
        """Run a command of pip on lines: its exit code and its last words.

        Declared source builds see what is installed, and are refused where their build requirements are not. For the
        pips that a build itself may run, both kinds of constraint are set; from 25.3 on pip refuses the second here.
        """
        listing = self.scratch / "lines.txt"
        listing.write_text("\n".join(lines), encoding="utf-8")
        builds = "" if built else ",".join(self.policy["source_builds"])
        build = [f"--no-binary={builds}", "--no-build-isolation", "--check-build-dependencies"] if builds else []
        names = ["PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"][: 2 if Version(pip_version) < Version("25.3") else 1]
        environment = {**self.environment, **dict.fromkeys(names if bound else [], str(self.constraints))}
        arguments = (command, "--only-binary=:all:", *build, *options, f"--requirement={listing}")
        code, said = pip(*arguments, environment=environment)
        return code, "\n    ".join(said.splitlines()[-TAIL:])

    def dry_run(self, lines: list[Ask], *options: str, bound: bool = True) -> tuple[list[Item] | None, str]:
        """Let pip plan: its plan where it found one, and its last words."""
        report = self.scratch / "report.json"
        report.unlink(missing_ok=True)
        needs = [str(need) for need, _ in lines]
        code, words = self.pip("install", needs, "--dry-run", f"--report={report}", *options, bound=bound)
        return None if code else read_plan(report), words

    def plan(self, lines: list[Ask], *options: str) -> tuple[list[Item], dict[str, str]]:
        """Judge what pip would install for the lines: the plan, and who asks for each name of it."""
        plan, words = self.dry_run(lines, *options) if lines else ([], "")
        if plan is None:
            raise Fault(*self.conflicts(lines), f"pip finds no plan:\n    {words}")
        asked = asks(lines, plan)
        chains = {name_of(need): chain for need, chain in reversed(asked)}
        refuse([f"{item.name} {item.version} {text}\n    {chains.get(item.name)}"
                f"{self.change(chains.get(item.name, ''), *places)}"
                for item in plan for rule in PLAN for text, *places in rule(self, item)]
               + [text for rule in MACHINE for text in rule(self, asked)])
        return plan, chains

    def install(self, lines: list[Ask], *options: str) -> list[dict[str, str]]:
        """Install exactly the judged plan: name, version and hash."""
        plan, chains = self.plan(lines, *options)
        self.install_exactly(plan)
        return [{"name": item.name, "version": item.version, "url": item.url, "sha256": item.sha256,
                 "requested_by": chains.get(item.name, "")} for item in plan]

    def install_exactly(self, plan: list[Item]) -> None:
        """Install the judged bytes and nothing else, after a look at what files they bring; builds are pip's."""
        builds = {str(canonicalize_name(name)) for name in self.policy["source_builds"]}
        fast = [item for item in plan if self.policy["installer"] and item.name not in builds]
        slow = [item for item in plan if item not in fast]
        uv, pins = self.uv() if fast else None, [pin(item, item.sha256) for item in fast]
        wheels = self.wheels(slow) if slow else {}
        files = {name: zipfile.ZipFile(path).namelist() for name, path in wheels.items()}
        looked, words = uv.look(pins) if uv else ({}, "")
        refuse([f"uv did not fetch the judged plan:\n    {words}"] * bool(words))
        refuse([text for item in plan for rule in FILES for text in rule(self, item, {**files, **looked}[item.name])])
        if slow:
            links = ("--no-deps", "--require-hashes", "--no-index", f"--find-links={self.scratch / 'wheels'}")
            exact = [pin(item, sha256_of(wheels[item.name])) for item in slow]
            code, words = self.pip("install", exact, *links, bound=False, built=True)
            refuse([f"pip did not install the judged plan:\n    {words}"] * (code > 0))
        words = uv.install({pin(item, item.sha256): looked[item.name] for item in fast}) if uv else ""
        refuse([f"uv did not install the judged plan:\n    {words}"] * bool(words))

    def wheels(self, plan: list[Item]) -> dict[str, Path]:
        """Fetch a plan's wheels with pip, which also makes those that are declared as builds."""
        folder, options = self.scratch / "wheels", ("--no-deps", "--require-hashes")
        shutil.rmtree(folder, ignore_errors=True)
        exact = [pin(item, item.sha256) for item in plan]
        code, words = self.pip("wheel", exact, *options, f"--wheel-dir={folder}")
        refuse([f"pip did not install the judged plan:\n    {words}"] * (code > 0))
        return {str(canonicalize_name(path.name.partition("-")[0])): path for path in folder.glob("*.whl")}

    def uv(self) -> "Uv":
        """Fetch the uv that the policy pins; it is gone after the step."""
        from installer import Uv  # noqa: PLC0415 - the rules are read outside of the image too, where it has no place

        tool, folder = self.policy["installer"]["uv"], self.scratch / "uv"
        if not folder.exists():
            exact = [f"uv=={tool['version']} --hash=sha256:{tool['sha256']}"]
            options = ("--no-deps", "--require-hashes", f"--target={folder}")
            code, words = self.pip("install", exact, *options, bound=False, built=True)
            told = f"the installer cannot be had{self.change('', 'installer.uv')}, or leave it out: pip installs then"
            refuse([f"{told}\n    {words}"] * (code > 0))
        return Uv(folder / "bin" / "uv", self.environment, self.scratch)

    def conflicts(self, lines: list[Ask]) -> list[str]:
        """Plan once more without constraints, and list who asks for what they exclude."""
        plan = self.dry_run(lines, bound=False)[0] or []
        free, faults = {item.name: item.version for item in plan}, []
        for need, chain in asks(lines, plan):
            if (name := name_of(need)) in self.held and str(need.specifier):
                held, what, *places = self.held[name]
                if exact := re.fullmatch(r"==([^*,]+)", held):
                    fits = need.specifier.contains(exact[1], prereleases=True)
                else:  # a range excludes nothing by itself: the free plan tells whether it was kept
                    fits = name not in free or SpecifierSet(held).contains(free[name], prereleases=True)
                faults += [] if fits else [f"{chain}, but {what}{self.change(chain, *places)}"]
        return list(dict.fromkeys(faults))

    def unmet(self) -> list[str]:
        """List where what the installed overrides lack is not exactly what the manifest waives."""
        faults = []
        for name, rule in self.overrides.items():
            if not (dist := installed(name)) or f"=={dist.version}" != rule["version"]:
                continue
            needs = [need for need in requirements(dist) if applies(need, set())]
            lacking = {name_of(need): str(need) for need in needs if not satisfied(need)}
            waived = {str(canonicalize_name(other)): place for other, place in rule["waived"].items()}
            title, key = f"{name} {dist.version}, an override,", f"pip_check.{name}"
            faults += [f"{title} needs {text}, which is not there{self.change('', self.rules['where'], key)}"
                       for other, text in lacking.items() if other not in waived]
            faults += [f"{title} lacks no {other}: its waiver has to go{self.change('', place)}"
                       for other, place in waived.items() if other not in lacking]
        return faults


def satisfied(need: Requirement) -> bool:
    dist = installed(name_of(need))
    return bool(dist and need.specifier.contains(dist.version, prereleases=True))


def pin(item: Item, sha256: str) -> str:
    return f"{item.name}=={item.version} --hash=sha256:{sha256}"


def sha256_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


# What is wrong with an item of a plan: a text, and the places in the manifest.


def sealed_name(judge: Judge, item: Item) -> Iterator[tuple[str, ...]]:
    if sealed := judge.sealed.get(item.name):
        yield f"would replace the sealed {item.name} {sealed['version']}", judge.rules["where"]


def absent_family(judge: Judge, item: Item) -> Iterator[tuple[str, ...]]:
    if item.name in FAMILY and item.name not in judge.sealed:
        yield "is of torch's family, and the base has none: the public ones are CUDA builds", judge.rules["where"]


def absent_sealed(judge: Judge, item: Item) -> Iterator[tuple[str, ...]]:
    """A name that the manifest would seal, and that the base lacks: public indexes have strangers of such names."""
    for glob, rule in judge.policy["sealed"].items():
        if fnmatchcase(item.name, canonicalize_name(glob)) and item.name not in judge.sealed:
            yield f"is sealed as {glob}, and the base has none", judge.rules["where"], rule["where"]


def provided(judge: Judge, item: Item) -> Iterator[tuple[str, ...]]:
    for name, rule in judge.policy["provided"].items():
        if canonicalize_name(name) == item.name:
            yield f"is built here from the source {rule['source']}", judge.rules["where"], rule["where"]


def forbidden(judge: Judge, item: Item) -> Iterator[tuple[str, ...]]:
    for glob, rule in judge.policy["forbidden"].items():
        if fnmatchcase(item.name, canonicalize_name(glob)):
            yield f"is forbidden as {glob}: {rule['reason']}", judge.rules["where"], rule["where"]


def unrecorded(_: Judge, item: Item) -> Iterator[tuple[str, ...]]:
    if (old := installed(item.name)) and not old.read_text("RECORD"):
        yield f"would replace {item.name} {old.version}, which has no RECORD for an uninstall", "removed"


def direct(judge: Judge, item: Item) -> Iterator[tuple[str, ...]]:
    if item.address:
        yield f"comes from {item.address}, {item.url}: no index vouches for it", judge.rules["where"], "sources"


# What is wrong with the machine, where a requirement could resolve a sealed name.


def reopening(judge: Judge, asked: list[Ask]) -> Iterator[str]:
    chain = next((chain for need, chain in asked if name_of(need) in judge.sealed), None)
    for key in judge.unheard:
        if chain and key in REOPENING and key not in judge.policy["ignored_pip_options"]:
            told = f"{key} of the machine's configuration could take a sealed distribution from elsewhere\n    {chain}"
            yield f"{told}{judge.change('', f'ignored_pip_options.{key}')}, or unset it in the base"


# What is wrong with the files that a distribution would install.


def sealed_module(judge: Judge, item: Item, files: list[str]) -> Iterator[str]:
    """Find what lands in a sealed module, by whatever way a wheel can put it there."""
    names = [INTO_SITE.sub("", name) for name in files]
    tops = {re.split(r"[/.]", name)[0] for name in names if re.search(r"/|\.py$|\.so$", name)}
    titles = {name.partition("/")[0] for name in names if re.match(r"[^/]+\.(?:dist|egg)-info/", name)}
    others = {str(canonicalize_name(title.partition("-")[0])) for title in titles} - {item.name}
    for what in [*sorted(tops & set(judge.seal["modules"])), *sorted(others & set(judge.sealed))]:
        told = f"{item.name} {item.version} brings files of the sealed {what} under another name"
        yield f"{told}{judge.change('', judge.rules['where'], 'forbidden')}"


# The rules. Each is needed: tests/guards removes one at a time.
LINES = (
    an_option,
    a_repository,
    a_path,
    an_address,
)
PLAN = (
    sealed_name,
    absent_family,
    absent_sealed,
    provided,
    forbidden,
    unrecorded,
    direct,
)
MACHINE = (
    reopening,
)
FILES = (
    sealed_module,
)


def install(root: Path, step: str) -> int:
    """Install the overrides that a step names, then the rest; keep the plan."""
    refuse([f"pip {pip_version} makes no report: 22.2 is the oldest that does"] * (Version(pip_version) < OLDEST))
    with tempfile.TemporaryDirectory() as scratch:
        judge = Judge(root, step, Path(scratch))
        for key in judge.unheard:
            print(f"judge: {step}: {key} of the machine's configuration is not used here")
        overrides, rest = judge.lines()
        plan = judge.install(overrides, "--no-deps") + judge.install(rest)
        refuse(judge.unmet() if step == judge.policy["steps"][-1] else [])  # a later set may still bring it
    (root / "plans").mkdir(exist_ok=True)
    text = json.dumps({"schema": 1, "step": step, "distributions": plan})
    (root / "plans" / f"{step}.json").write_text(text, encoding="utf-8")
    return len(plan)


def remove(root: Path, names: list[str], optional: list[str]) -> int:
    """Remove distributions of the base, also those that pip cannot uninstall for want of a RECORD."""
    sealed = json.loads((root / "seal.json").read_text("utf-8"))["distributions"]
    copies = {name: list(metadata.distributions(name=name)) for name in [*names, *optional]}
    refuse([f"{name} is sealed" for name in copies if canonicalize_name(name) in sealed])
    refuse([f"{name} is not installed, and not optional" for name in names if not copies[name]])
    for dist in [dist for found in copies.values() for dist in found]:
        if dist.read_text("RECORD"):
            code, said = pip("uninstall", "--yes", dist.metadata["Name"], environment=pip_environment()[0])
            refuse([f"pip uninstall: {said}"] * (code > 0))
            continue
        for path in paths_of(dist):
            print(f"judge: remove: {path}")
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return sum(map(len, copies.values()))


def paths_of(dist: metadata.Distribution) -> list[Path]:
    """Find the metadata of a copy without RECORD, and the modules that no other distribution has."""
    folder, name = Path(str(dist.locate_file(""))), canonicalize_name(dist.metadata["Name"])
    tops = set(re.findall(r"^\w+$", dist.read_text("top_level.txt") or name.replace("-", "_"), re.MULTILINE))
    for other in metadata.distributions():
        if canonicalize_name(other.metadata["Name"]) != name:
            tops -= {file.parts[0].partition(".")[0] for file in other.files or []}
    infos = [path for path in folder.glob("*-info") if not (path / "RECORD").exists()]
    infos = [path for path in infos if canonicalize_name(re.split(r"-|\.egg|\.dist", path.name)[0]) == name]
    modules = [path for path in folder.iterdir() if path.name.partition(".")[0] in tops and path not in infos]
    return infos + modules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("install", "remove"))
    parser.add_argument("names", nargs="*", help="the step to install, or the distributions to remove")
    parser.add_argument("--optional", nargs="*", action="extend", default=[])
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    given = parser.parse_intermixed_args()
    step, root = "remove" if given.command == "remove" else given.names[0], given.root.resolve()
    try:
        count = remove(root, given.names, given.optional) if step == "remove" else install(root, step)
    except Fault as fault:
        sys.exit("\n".join(f"judge: {step}: {line}" for line in fault.args))
    print(f"judge: {step}: {count} distributions, done")


if __name__ == "__main__":
    main()
