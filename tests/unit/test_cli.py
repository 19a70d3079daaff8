"""The command line, as a person types it, in a copy of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project"
    for name in ("builder", "dockerfiles", "images", "templates"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def run(project: Path) -> Run:
    def typed(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "builder", *arguments]
        environment = os.environ | {"PYTHONPATH": str(project), "DOCKER_HOST": f"unix://{project}/no-engine.sock"}
        return subprocess.run(command, cwd=cwd or project, env=environment, capture_output=True, text=True, check=False)

    return typed


def test_check_says_one_line_an_image(run: Run) -> None:
    done = run("check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "rocm7.14: ok\n", "")


def test_check_counts_what_is_unknown(run: Run, project: Path) -> None:
    path = project / "images/rocm7.14.yaml"
    lines = path.read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if line.startswith("    commit: 2b83"))
    lines[number] = "    commit: unknown"
    path.write_text("\n".join(lines) + "\n")
    assert run("render").returncode == 0
    done = run("check")
    assert done.stdout.splitlines()[0] == "rocm7.14: ok, 1 unknown"
    assert f"images/rocm7.14.yaml:{number + 1}:5: error: sources.vime.commit is unknown" in done.stdout
    refused = run("image", "rocm7.14")
    assert (refused.returncode, "sources.vime.commit is unknown" in refused.stderr) == (3, True)


@pytest.mark.parametrize(("state", "change"), [("stale", "edit"), ("missing", "delete")])
def test_a_dockerfile_that_is_not_fresh_is_an_error_with_the_command_to_run(
    run: Run, project: Path, state: str, change: str
) -> None:
    path = project / "dockerfiles/Dockerfile.rocm7.14"
    if change == "edit":
        path.write_text(path.read_text() + "# edited\n")
    else:
        path.unlink()
    done = run("check")
    assert done.returncode == 5
    assert f"dockerfiles/Dockerfile.rocm7.14 is {state}" in done.stderr
    assert "python -m builder render rocm7.14" in done.stderr
    assert run("render", "--check").returncode == 5
    assert run("render").returncode == 0
    assert run("check").returncode == 0


def test_an_unknown_image_suggests_the_near_one(run: Run) -> None:
    done = run("render", "rocm7.41")
    assert (done.returncode, done.stderr) == (2, "error: no image 'rocm7.41'\n    hint: did you mean 'rocm7.14'?\n")


def test_a_version_that_differs_by_a_trailing_zero_is_another_image(run: Run) -> None:
    assert "no image 'rocm7.140'" in run("check", "rocm7.140").stderr


def test_a_typo_in_a_key_is_an_error_with_its_place_and_no_traceback(run: Run, project: Path) -> None:
    path = project / "images/rocm7.14.yaml"
    path.write_text(path.read_text().replace("workdir:", "workdri:"))
    done = run("check")
    number = next(i for i, line in enumerate(path.read_text().splitlines(), 1) if line.startswith("workdri"))
    assert done.returncode == 3
    assert (
        done.stderr
        == f"images/rocm7.14.yaml:{number}:1: error: unknown key 'workdri'\n    hint: did you mean 'workdir'?\n"
    )


def test_an_unknown_gpu_target_names_the_known_ones(run: Run) -> None:
    done = run("rehearse", "rocm7.14", "--gpu-target", "gfx90a")
    assert done.returncode == 2
    assert "no GPU target 'gfx90a' in this image" in done.stderr
    assert "known are gfx942, gfx950" in done.stderr


@pytest.mark.parametrize("arguments", [("rehearse", "rocm7.14"), ("image", "rocm7.14"), ("verify", "x:y"), ("engine",)])
def test_without_an_engine_every_command_that_needs_one_says_how_to_start_it(
    run: Run, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments)
    assert done.returncode == 11
    assert "no container engine at unix://" in done.stderr
    assert "scripts/engine start" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_work_from_another_folder(run: Run, tmp_path: Path, project: Path) -> None:
    done = run("render", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{project.name}/dockerfiles/Dockerfile.rocm7.14\n")


def test_render_needs_no_docker_sdk(project: Path) -> None:
    program = "import sys; sys.modules['docker'] = None; from builder.cli import main; main(['render'])"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, cwd=project, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("command", ["check", "engine", "image", "rehearse", "render", "verify"])
def test_every_help_has_an_example(run: Run, command: str) -> None:
    assert f"Example: python -m builder {command}" in " ".join(run(command, "--help").stdout.split())


def test_all_commands_have_been_asked_for_their_help(run: Run) -> None:
    listed = run("--help").stdout.partition("Commands:")[2].split("\n")
    assert {line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "} == {
        "check", "engine", "image", "rehearse", "render", "verify",
    }  # fmt: skip
