"""Traps as cases for `in_turn`, environments to run them in, and what their outcomes come to."""

from __future__ import annotations

import copy
import fnmatch
import json
import re
import shutil
import subprocess
import venv
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import in_turn
from packaging.utils import canonicalize_name
from traps import EXTRA, EXTRAS, INDEX, INDEXED, PYTHON, TRAPS, Trap
from wheels import pip_files

from builder import dockerfile, facts, lists, manifest, render, standin, stock, wheelhouse

ROOT = Path(__file__).parents[2]
INSIDE = ROOT / "builder" / "inside"
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
FACTS = facts.of(MANIFEST, ROOT)
PIPS = ("22.3", "24.0", "25.3", "newest")
STEP = "REQUIREMENTS_VLLM"
HOME = lists.HOME
MODES = ("plain", "text", "ours")
# As public Dockerfiles look at what pip says: a space before the name, so never the first of the list.
EXPRESSION = re.compile(r"Would install .* (torch|vllm)-[0-9]")
# How a rule of the judge or of the seal is known by what it says.
MARKS = {
    "plan": "pip finds no plan",
    "sealed_name": "would replace the sealed",
    "absent_family": "is of torch's family",
    "absent_sealed": "is sealed as .*, and the base has none",
    "provided": "is built here from the source",
    "forbidden": "is forbidden as",
    "unrecorded": "which has no RECORD",
    "direct": "no index vouches",
    "an_option": "may only name distributions",
    "a_path": "is a path:",
    "a_repository": "is a repository:",
    "an_address": "is no name with a version",
    "reopening": "could take a sealed distribution from elsewhere",
    "sealed_module": "under another name",
    "unmet": ", an override,",
    "provider": "is no installed distribution",
    "no_hip": "has no hip",
    "cuda_fields": "has cuda =",
    "other_version": "is another build than",
    "other_hip": "is for another ROCm",
    "unmet_requirements": "requires .*, but",
    "replaced": ": replaced |the distribution is gone",
    "changed_files": ": file (changed|missing)",
    "changed_record": "its RECORD changed",
    "second_owners": "a second distribution owns",
    "new_guests": "brings files into the sealed module",
}

BUILT = {"changed_files", "replaced", "changed_record", "second_owners", "new_guests"}  # what the seal finds afterwards


@dataclass(frozen=True, kw_only=True)
class Bench:
    """An environment in which cases run: its places, and copies of them as they were."""

    python: str
    site: str
    home: str
    folders: Mapping[str, str]
    index: str
    extra: str
    python_name: str
    with_uv: bool

    def fill(self, text: str) -> str:
        """A text with this environment's places."""
        for mark, value in (
            (INDEX, self.index),
            (EXTRA, self.extra),
            (PYTHON, self.python_name),
            ("@ROOT@", self.home),
        ):
            text = text.replace(mark, value)
        return text

    def body(self, step: str) -> str:
        """The script of a step of the committed Dockerfile, with this environment's places."""
        found = next(each for each in dockerfile.parse(render.render(MANIFEST, FACTS)) if each.name == step)
        text = "\n".join(found.heredocs[0].body)
        text = text.replace(FACTS.python.executable, self.python)
        root = "" if self.home == HOME else f" --root {self.home}"
        return re.sub(rf"{HOME}/bin/(\w+)\.py", rf"{self.home}/bin/\1.py{root}", text)

    def sealing(self, optional: Sequence[str]) -> str:
        """The step that seals the base; what it may lack comes last."""
        lines = [line.rstrip(" \\") for line in self.body("SEAL_BASE").splitlines()]
        kept = [line for line in lines if line.strip() and line.strip() not in optional]
        return " \\\n".join([*kept, *(f"    --optional {name}" for name in optional)]) + "\n"

    def case(self, trap: Trap, mode: str) -> dict[str, Any]:
        """What `in_turn` runs of a trap: plain pip, a dry run whose words are read, or the recipe's own steps."""
        file = f"{self.home}/requirements/vllm/rocm.txt"
        sealing = (trap.write or trap.remove or trap.optional) and not trap.broken
        scripts = {
            "plain": f"{self.python} -m pip install -r {file}",
            "text": f"{self.python} -m pip install --dry-run -r {file}",
            "ours": (self.sealing(trap.optional) if sealing else "") + self.body(STEP),
        }
        configuration = f"[global]\nindex-url = {self.index}/simple\n[install]\n{self.fill(trap.configuration)}"
        return {
            "script": scripts[mode],
            "remove": list(trap.remove),
            "write": dict(trap.write),
            "files": {
                file: self.fill(trap.lines) + "\n",
                f"{self.home}/policy.json": json.dumps(self.policy(trap)),
                f"{self.home}/sets/{STEP}.json": json.dumps(self.rules()),
                f"{self.home}/pip.conf": configuration,
                f"{self.home}/other.txt": "torch==2.13.0\n",
            },
            "environment": {
                "HOME": self.home,
                "XDG_CONFIG_DIRS": self.home,
                "PIP_RETRIES": "0",
                "PIP_CONFIG_FILE": f"{self.home}/pip.conf",
                "PIP_NO_CACHE_DIR": "1",  # a build that is kept from one case would not run in the next
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "TRAP_NOTE": f"{self.home}/note",
                **{name: self.fill(value) for name, value in trap.environment.items()},
            },
        }

    def policy(self, trap: Trap) -> dict[str, Any]:
        """The image's policy, for one set."""
        policy = copy.deepcopy(lists.policy(MANIFEST)) | dict(trap.policy)
        policy |= {} if self.with_uv else {"installer": {}}
        return policy | {"steps": [STEP]}

    def rules(self) -> dict[str, Any]:
        """Those of the set; nothing is added to the trap's own lines."""
        rules = lists.requirement_set(MANIFEST.sources["vllm"])
        return rules | {"add": [], "file": str(rules["file"]).replace(HOME, self.home)}


def write_index(folder: Path, wheels: Iterable[wheelhouse.Wheel], address: str, python_name: str) -> None:
    """A package index in `folder`; what is asked for and not there is made, as in the stand-in's."""
    (folder / "files").mkdir(parents=True)
    for wheel in wheels:
        files = {path.replace(PYTHON, python_name): content for path, content in wheel.files.items()}
        requires = [text.replace(INDEX, address) for text in wheel.requires]
        changed = wheelhouse.Wheel(
            name=wheel.name,
            version=wheel.version,
            files=files,
            requires=requires,
            extras=wheel.extras,
            as_source=wheel.as_source,
        )
        changed.write(folder / "files")
    for path in stock.tools(MANIFEST, FACTS, ROOT / ".cache"):
        shutil.copy(path, folder / "files")
    wheelhouse.write_index(folder)


def pip_version(folder: Path, version: str) -> str:
    (info,) = pip_files(folder, version).glob("pip-*.dist-info")
    return info.stem.removeprefix("pip-")


def bench(folder: Path, pip: Path, inside: Path = INSIDE) -> Bench:
    """An environment with the stand-in base's distributions, sealed by the recipe's own step; the newest has uv too."""
    place, kept = folder / "place", folder / "kept"
    venv.create(place / "venv", with_pip=False, symlinks=True)
    site = next((place / "venv" / "lib").glob("python*/site-packages"))
    for path in pip.glob("pip*"):
        (site / path.name).symlink_to(path.resolve())
    for wheel in stock.base_distributions(FACTS, standin.STANDINS):
        wheel.unpack(site)
    stock.write_unrecorded(site)
    index, extra = folder / "index", folder / "extra"
    write_index(index, INDEXED, index.as_uri(), site.parent.name)
    write_index(extra, EXTRAS, extra.as_uri(), site.parent.name)
    home = place / "image"
    shutil.copytree(inside, home / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    made = Bench(
        python=str(place / "venv" / "bin" / "python"),
        site=str(site),
        home=str(home),
        folders={str(place): str(kept)},
        index=index.as_uri(),
        extra=(extra / "simple").as_uri(),
        python_name=site.parent.name,
        with_uv=pip.name == "pip-newest",
    )
    done = subprocess.run([*in_turn.SHELL, made.sealing([])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.copytree(place, kept, symlinks=True)
    return made


def outcomes(made: Bench, traps: Iterable[Trap], modes: Sequence[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Run traps there, one after the other: what came of each, by its title and mode."""
    return {
        (trap.title, mode): in_turn.run(made.case(trap, mode), dict(made.folders), Path(made.site))
        for trap in traps
        for mode in modes
    }


def harm(outcome: Mapping[str, Any]) -> list[str]:
    """What became of the base: nothing, or what a first GPU operation would show."""
    before, after = outcome["before"], outcome["after"]
    sealed = [name for name in before["versions"] if _matches(name, MANIFEST.sealed)]
    swapped = [name for name in sealed if after["versions"].get(name) != before["versions"][name]]
    brought = [name for name in after["versions"] if name not in before["versions"] and name not in swapped]
    strange = [*MANIFEST.forbidden, *MANIFEST.sealed, *(source.distribution for source in MANIFEST.sources.values())]
    bad = [name for name in brought if _matches(name, strange)]
    tops = {name.replace("-", "_") for name in sealed} | {"aiter"}
    mine = {top for name in swapped for top in (name.replace("-", "_"),)}
    changed = {
        path.partition("/")[0].removesuffix(".py")
        for path in before["files"].keys() | after["files"].keys()
        if before["files"].get(path) != after["files"].get(path) and re.split(r"[/.]", path)[0] in tops
    }
    found = [f"replaces {', '.join(swapped)}"] if swapped else []
    found += [f"brings {', '.join(bad)}"] if bad else []
    written = sorted(changed - mine - {name.replace("-", "_") for name in bad})
    found += [f"writes into {', '.join(written)}"] if written else []
    wrong = [line for line in outcome["noted"].splitlines() if not line.endswith(FACTS.distributions["torch"])]
    found += [f"{line}" for line in dict.fromkeys(wrong)]
    return found


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, canonicalize_name(pattern)) for pattern in patterns)


def rules(said: str) -> list[str]:
    """The rules that spoke."""
    return [name for name, mark in MARKS.items() if re.search(mark, said)]


def assert_caught(trap: Trap, outcome: Mapping[str, Any]) -> None:
    """Whether the rule that a trap names has spoken, and has kept the base as it was."""
    said = outcome["said"] + outcome["noted"]
    assert "Traceback" not in said
    assert [fact for fact in trap.says if fact not in said] == [], said
    assert harm(outcome) == [] or trap.by in BUILT, said
    if not trap.by:
        assert outcome["code"] == 0, said
        return
    assert outcome["code"] != 0, said
    assert trap.by in rules(said), said
    assert re.search(r"^(judge|seal): (base|REQUIREMENTS_VLLM): ", said, re.MULTILINE)


def verdict(mode: str, outcome: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """What a guard does, in a few words."""
    if mode == "text":
        stops = bool(EXPRESSION.search(outcome["said"]))
        harmful = bool(harm(plain))
        if plain["code"]:
            return "stops" if stops else "passes it on to pip, which fails"
        return ("stops" if stops else "misses") if harmful else ("stops wrongly" if stops else "passes")
    if mode == "plain":
        return "; ".join(harm(outcome)) or ("fails" if outcome["code"] else "installs")
    if outcome["code"]:
        return "refuses: " + (", ".join(rules(outcome["said"])) or "unknown")
    return "; ".join(harm(outcome)) or "installs"


def verdicts(folder: Path, cache: Path, pips: Sequence[str] = PIPS) -> dict[str, dict[str, dict[str, str]]]:
    """Every trap with several pips: the verdicts by title, mode and pip."""

    def one(version: str) -> dict[tuple[str, str], dict[str, Any]]:
        return outcomes(bench(folder / version, pip_files(cache, version)), TRAPS, MODES)

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(pips, pool.map(one, pips), strict=True))
    return {
        trap.title: {
            mode: {
                pip: verdict(mode, outcome[trap.title, mode], outcome[trap.title, "plain"])
                for pip, outcome in found.items()
            }
            for mode in MODES
        }
        for trap in TRAPS
    }
