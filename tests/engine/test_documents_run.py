"""The commands of README.md and docs/, run as they stand there: on a copied checkout, an engine and a rehearsal."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_documents import DOCUMENTS, commands

from builder.build import Order
from builder.engine import Engine
from builder.report import Report

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"^(?:vime:[\w.-]+|TAG)$")  # an image as documents name it; here, the rehearsal's

# What is not run here, and why; tests/unit/test_documents.py has its arguments taken by its command all the same.
ELSEWHERE = {
    r"image|facts|preflight|bump|doctor|patches( |$)": "asks GitHub, a package index, a registry, or wants a base of 76 GB: "
    "test_preflight.py, test_bump.py, test_machine.py, test_reading.py have them on repositories and registries of their own",
    r"rehearse": "minutes: test_front_door.py and test_terminal.py run it",
    r"debug": "opens a terminal: test_terminal.py runs it",
    r"push": "a registry of somebody: test_push.py has its own",
    r"probe|verify .*--gpu": "a GPU host: test_probe_in_a_container.py has a simulated one",
    r"run": "a terminal, and a GPU host: test_terminal.py runs it; here with --print",
    r"lock": "wants an image as its manifest has it: test_locked_builds.py runs it",
    r".*(?:rocm7\.15|IMAGE|REF)": "what docs/new-image.md makes: test_starting.py does",
}
HERE = r"run .*--print"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this project, under git, with a commit on `main`."""
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("builder", "dockerfiles", "images", "schema", "templates"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-c", "commit.gpgsign=false", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet", "-b", "main"], ["add", "."], ["commit", "--quiet", "-m", "as documented"]):
        subprocess.run([*git, *words], cwd=root, check=True)
    return root


def documented() -> list[list[str]]:
    """Each command line once; those that only name a command are none."""
    found = (words for path in DOCUMENTS for words in commands(path.read_text(encoding="utf-8")) if len(words) > 1)
    return [shlex.split(line) for line in sorted({shlex.join(words) for words in found})]


def elsewhere(words: list[str]) -> str | None:
    line = shlex.join(words)
    if re.match(HERE, line):
        return None
    return next((reason for pattern, reason in ELSEWHERE.items() if re.match(pattern, line)), None)


def test_what_documents_have_people_type_works(engine: Engine, clean: tuple[Order, Report], checkout: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    if engine.address.startswith("unix://"):
        environment["DOCKER_HOST"] = engine.address
    here = [words for words in documented() if elsewhere(words) is None]
    told: dict[str, str] = {}
    for words in ([NAMED.sub(clean[0].tag, word) for word in line] for line in here):
        done = subprocess.run(
            [sys.executable, "-m", "builder", *words],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
        told[shlex.join(words)] = done.stdout
    assert {"diff", "explain", "matrix", "sbom", "verify"} <= {line.split()[0] for line in told}
    for line, out in told.items():
        assert out.strip() or "--changed-since" in line, f"{line} says nothing"
    assert json.loads(next(out for line, out in told.items() if "--format bake" in line))["target"]
    assert "<testsuites" in (checkout / "report.xml").read_text()


def test_each_reason_is_still_one() -> None:
    lines = [shlex.join(words) for words in documented()]
    assert [pattern for pattern in ELSEWHERE if not any(re.match(pattern, line) for line in lines)] == []
