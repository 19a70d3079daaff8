"""What other machines run: it reads but where it has to write, pins what it takes, and its scripts do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONLINT = Path(sys.executable).parent / "actionlint"

every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows" / f"{name}.yml").read_text("utf-8"))
    return found


def steps(workflow: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def script(workflow: str, name: str) -> str:
    """The script of a step, by the step's name."""
    return str(next(step for step in steps(read(workflow)) if step.get("name") == name)["run"])


def bash(text: str, where: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as GitHub runs it with `shell: bash`."""
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(words, cwd=where, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not ACTIONLINT.is_file(), reason="actionlint is not installed: its package gets it from GitHub")
def test_actionlint_has_nothing_to_say() -> None:
    done = subprocess.run([ACTIONLINT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@every_workflow
def test_an_action_or_a_container_of_others_is_pinned_or_says_that_its_pin_is_unknown(path: Path) -> None:
    for line in path.read_text("utf-8").splitlines():
        if re.match(r"\s*(- )?uses:", line):
            assert re.search(r"@[0-9a-f]{40} # v|# commit: unknown", line), line
        if re.match(r"\s*image: [^$]", line):
            assert re.search(r"@sha256:[0-9a-f]{64}|# digest: unknown", line), line


@every_workflow
def test_its_token_only_reads_but_for_the_one_that_opens_pull_requests(path: Path) -> None:
    writes = {"contents": "write", "pull-requests": "write"} if path.stem == "bump" else {"contents": "read"}
    workflow = read(path.stem)
    assert workflow["permissions"] == writes
    assert [job for job in workflow["jobs"].values() if "permissions" in job] == []


def test_what_a_pull_request_runs_has_no_secrets() -> None:
    assert set(read("ci")[True]) == {"pull_request"}  # YAML 1.1 reads the key `on` as true
    assert "secrets." not in (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    others = [path for path in WORKFLOWS if path.stem != "ci"]
    assert [path for path in others if "pull_request" in str(read(path.stem)[True])] == []


@every_workflow
def test_what_people_type_reaches_a_script_only_as_a_variable(path: Path) -> None:
    """An expression in a script is put there as text, and would be run."""
    found = {expression for step in steps(read(path.stem)) for expression in re.findall(r"\$\{\{.*?\}\}", step["run"])}
    assert found <= {"${{ matrix.goal }}"}


def test_what_a_pull_request_runs_are_goals_of_the_makefile() -> None:
    for goal in read("ci")["jobs"]["make"]["strategy"]["matrix"]["goal"]:
        done = subprocess.run(["make", "--dry-run", *goal.split()], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


# The scripts, with programs of ours in place of those that only GitHub's and Buildkite's machines have


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with three commits."""
    folder = tmp_path / "owner/name"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    for text in ("first", "second", "third"):
        (folder / "file").write_text(text)
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "--message", text)
    return folder


def git(where: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=True).stdout.strip()


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What GitHub tells a step; the builder, make, gh and Buildkite's agent write down what they are told."""
    program(tmp_path / "tools/make", "")
    for name in ("gh", "buildkite-agent"):
        program(tmp_path / "tools" / name, f'printf "%s\\n" "$@" > {tmp_path}/{name}.words')
    return {
        "GITHUB_ACTOR": "somebody",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_REF_NAME": "main",
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_SERVER_URL": f"file://{tmp_path}",
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}/tools{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "TOKEN": "",
    }


@pytest.mark.parametrize("workflow", ["bump", "ci", "images"])
def test_a_checkout_is_exactly_the_commit_and_has_its_history(
    workflow: str, origin: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    if workflow == "images":  # on a machine that keeps its folder
        (here / "file").write_text("left by an earlier job")
    first, second = git(origin, "rev-parse", "HEAD~2", "HEAD~1").split()
    done = bash(script(workflow, "Check out"), here, **environment, GITHUB_SHA=second)
    assert done.returncode == 0, done.stderr
    assert (here / "file").read_text() == "second"
    assert git(here, "rev-list", "HEAD").split() == [second, first]


@pytest.mark.parametrize(
    ("since", "wanted"), [("HEAD~1", " --changed-since HEAD~1"), ("0" * 40, ""), ("", "")], ids=["known", "new", "none"]
)
def test_the_matrix_is_of_what_has_changed_or_where_nobody_knows_of_everything(
    since: str, wanted: str, origin: Path, environment: dict[str, str]
) -> None:
    program(origin / ".venv/bin/python", 'echo "$@"')
    done = bash(script("images", "Say what there is to build"), origin, **environment, SINCE=since)
    assert done.returncode == 0, done.stderr
    assert Path(environment["GITHUB_OUTPUT"]).read_text() == f"matrix=-m builder matrix --format github{wanted}\n"
    program(origin / ".venv/bin/python", "exit 3")
    assert bash(script("images", "Say what there is to build"), origin, **environment, SINCE=since).returncode == 3


@pytest.mark.parametrize(("image", "first"), [("", "--all-images"), ("rocm7.14", "rocm7.14")])
def test_a_bump_has_each_pin_as_a_word_whatever_stands_in_it(
    image: str, first: str, environment: dict[str, str], tmp_path: Path
) -> None:
    program(tmp_path / ".venv/bin/python", 'printf "<%s>" "$@"')
    pins = {"PINS": "vllm=v0.30.0 vime=$(touch x)*", "IMAGE": image}
    done = bash(script("bump", "Bump, with its preflight"), tmp_path, **environment, **pins)
    words = [
        "-m",
        "builder",
        "bump",
        first,
        "vllm=v0.30.0",
        "vime=$(touch",
        "x)*",
        "--summary",
        f"{tmp_path}/summary.md",
    ]
    assert done.stdout == "".join(f"<{word}>" for word in words)
    assert not (tmp_path / "x").exists()


def test_a_bump_is_a_branch_and_a_pull_request_with_its_summary(
    origin: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    here, pins = tmp_path / "here", {"PINS": "vllm=v0.30.0", "BRANCH": "bump/1", "GH_TOKEN": ""}
    git(tmp_path, "clone", "--quiet", str(origin), str(here))
    done = bash(script("bump", "Open a pull request"), here, **environment, **pins)
    assert (done.returncode, done.stdout) == (0, "the pins are these already\n")
    (here / "file").write_text("fourth")
    done = bash(script("bump", "Open a pull request"), here, **environment, **pins)
    assert done.returncode == 0, done.stderr
    assert git(origin, "show", "bump/1:file") == "fourth"
    assert git(origin, "log", "-1", "--format=%an %s", "bump/1") == "somebody Pins: vllm=v0.30.0"
    asked = (tmp_path / "gh.words").read_text().splitlines()
    assert asked[:2] == ["pr", "create"]
    assert dict(zip(asked[2::2], asked[3::2], strict=True)) == {
        "--repo": "owner/name",
        "--base": "main",
        "--head": "bump/1",
        "--title": "Pins: vllm=v0.30.0",
        "--body-file": f"{tmp_path}/summary.md",
    }


@pytest.mark.parametrize(("since", "wanted"), [("", "HEAD^1"), ("abc", "abc")])
def test_buildkite_is_given_what_has_changed_since_the_merge(
    since: str, wanted: str, environment: dict[str, str], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    program(project / ".venv/bin/python", 'echo "$@"')
    program(tmp_path / "tools/buildkite-agent", f'echo "$@" > {tmp_path}/words; cat > {tmp_path}/pipeline')
    shutil.copy(ROOT / ".buildkite/images", project / ".venv")
    done = bash(str(project / ".venv/images"), tmp_path, **environment, SINCE=since)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "words").read_text() == "pipeline upload\n"
    assert (tmp_path / "pipeline").read_text() == f"-m builder matrix --changed-since {wanted} --format buildkite\n"
    program(project / ".venv/bin/python", "exit 3")
    assert bash(str(project / ".venv/images"), tmp_path, **environment).returncode == 3


def test_buildkite_s_pipeline_names_a_script_and_goals_that_are_there() -> None:
    pipeline = yaml.safe_load((ROOT / ".buildkite/pipeline.yml").read_text("utf-8"))
    commands = [step["command"] for step in pipeline["steps"] if step != "wait"]
    assert commands[-1] == ".buildkite/images"
    assert os.access(ROOT / commands[-1], os.X_OK)
    for command in commands[:-1]:
        assert bash(f"{command} --dry-run", ROOT).returncode == 0
