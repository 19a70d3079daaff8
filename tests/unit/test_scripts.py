"""What the scripts lack, a program, a right, a folder or an engine, is told in one line, with what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import ROOT

FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
ENGINES = ("dockerd", "containerd")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    return tmp_path


def without(checkout: Path, *programs: str, added: tuple[str, ...] = ()) -> str:
    """A PATH with all of this machine's programs but some, and stand-ins that fail for others."""
    folder = checkout / "programs"
    folder.mkdir()
    found = {path.name: path for there in reversed(FOLDERS) for path in Path(there).glob("*")}
    for name in found.keys() - {*programs}:
        (folder / name).symlink_to(found[name])
    for name in added:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text("#!/bin/sh\nexit 100\n")
        (folder / name).chmod(0o755)
    return str(folder)


def said(checkout: Path, *words: str, path: str | None = None, nobody: bool = False) -> tuple[int, str]:
    """Exit code and words of a script; by somebody who is not root, where that is asked for."""
    done = subprocess.run(
        ["bash", str(checkout / "scripts" / words[0]), *words[1:]],
        env={"PATH": path or os.environ["PATH"], "HOME": str(checkout)},
        user=65534 if nobody and os.geteuid() == 0 else None,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ["start", "stop", "status"])
def test_an_engine_without_a_program_that_its_name_takes(checkout: Path, words: str) -> None:
    told = "error: this machine has no program `sha256sum`\n    hint: install it, as by: apt-get install coreutils\n"
    assert said(checkout, "engine", words, path=without(checkout, "sha256sum")) == (11, told)


@pytest.mark.parametrize(
    ("program", "package"), [("curl", "curl"), ("ip", "iproute2"), ("flock", "util-linux"), ("setsid", "util-linux")]
)
def test_an_engine_without_a_program_names_it_and_its_package(checkout: Path, program: str, package: str) -> None:
    """There is an engine to start; it is never started."""
    path = without(checkout, program, added=ENGINES)
    told = f"error: this machine has no program `{program}`\n    hint: install it, as by: apt-get install {package}\n"
    assert said(checkout, "engine", "start", path=path) == (11, told)


def test_an_engine_where_none_can_be_installed(checkout: Path) -> None:
    code, told = said(checkout, "engine", "start", path=without(checkout, "apt-get", *ENGINES))
    assert (code, told.count("\n")) == (11, 2), told
    assert told.startswith(
        "error: no container engine, and this system has no apt\n    hint: install Docker 26 or newer"
    )


@pytest.mark.parametrize("script", ["engine", "browser"])
def test_only_root_installs(checkout: Path, script: str) -> None:
    open_to_all(checkout)
    (checkout / ".engine").mkdir()
    (checkout / ".engine").chmod(0o777)
    path = without(checkout, *ENGINES, "chromium-headless-shell", "chromium", "google-chrome", added=("apt-get",))
    code, told = said(checkout, script, "start", path=path, nobody=True)
    assert code
    assert told.count("\n") == 2, told
    assert "and only root may install one\n    hint: sudo " in told


@pytest.mark.parametrize("script", ["engine", "browser"])
def test_an_apt_that_reaches_nobody(checkout: Path, script: str) -> None:
    if os.geteuid():
        pytest.skip("only root is asked to install")
    lacking = (*ENGINES, "chromium-headless-shell", "chromium", "google-chrome")
    kept = Path("/usr/sbin/policy-rc.d").exists()
    code, told = said(checkout, script, "start", path=without(checkout, *lacking, added=("apt-get",)))
    assert code in {1, 11}
    assert "error: apt " in told
    assert told.count("    hint: ") == 1
    assert Path("/usr/sbin/policy-rc.d").exists() == kept, "what keeps services from starting goes with it"


def test_an_engine_in_a_checkout_of_somebody_else(checkout: Path) -> None:
    open_to_all(checkout)
    (checkout / ".engine").mkdir()
    (checkout / ".engine").chmod(0o555)
    code, told = said(checkout, "engine", "start", nobody=True)
    where = checkout / ".engine"
    assert (code, told) == (11, f"error: cannot write into {where}\n    hint: see whose it is: ls -ld {where}\n")


def test_only_root_stops_an_engine(checkout: Path) -> None:
    open_to_all(checkout)
    (checkout / ".engine").mkdir()
    (checkout / ".engine/host").write_text("unix:///nowhere.sock\n")
    hint = f"sudo {checkout}/scripts/engine stop"
    assert said(checkout, "engine", "stop", nobody=True) == (
        11,
        f"error: only root may stop an engine\n    hint: {hint}\n",
    )
    (checkout / ".engine/host").unlink()
    assert said(checkout, "engine", "stop", nobody=True) == (0, "")


def test_a_picture_without_a_report(checkout: Path) -> None:
    page = "build/rocm7.14-gfx942-rehearsal/report.html"
    told = f"error: there is no {page}\n    hint: make rehearse ROCM=7.14\n"
    assert said(checkout, "report-picture") == (1, told)


def test_a_picture_that_is_not_taken(checkout: Path) -> None:
    page = checkout / "build/rocm7.14-gfx942-rehearsal/report.html"
    page.parent.mkdir(parents=True)
    page.write_text("<p>")
    (checkout / "docs").mkdir()
    path = without(checkout, added=("chromium-headless-shell",))
    told = f"error: {path}/chromium-headless-shell takes no picture\n    hint: see what it says above\n"
    assert said(checkout, "report-picture", path=path) == (1, told)
    (Path(path) / "chromium-headless-shell").write_text("#!/bin/sh\n")
    assert (
        "has not written docs/report.png\n    hint: see whose it is" in said(checkout, "report-picture", path=path)[1]
    )


def test_transcripts_without_an_environment_a_folder_or_an_engine(checkout: Path) -> None:
    told = "error: there is no .venv/bin/python\n    hint: make .venv/development\n"
    assert said(checkout, "transcripts") == (1, told)
    (checkout / ".venv/bin").mkdir(parents=True)
    python = checkout / ".venv/bin/python"
    python.write_text("#!/bin/sh\necho 'error: no engine' >&2\nexit 11\n")
    python.chmod(0o755)
    told = "error: cannot write docs/transcripts.md\n    hint: see whose it is: ls -ld docs docs/transcripts.md\n"
    assert said(checkout, "transcripts") == (1, told)
    (checkout / "docs").mkdir()
    assert said(checkout, "transcripts") == (11, "error: no engine\n")


def open_to_all(folder: Path) -> None:
    """A folder that others than its owner may come to; pytest keeps its own closed."""
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)


@pytest.mark.parametrize("goal", ["rehearse", "image", "lock", "debug"])
def test_an_image_that_is_not_there_is_told_before_an_engine_is_looked_for(tmp_path: Path, goal: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / "runtime").touch()
    command = ["make", goal, "IMAGE=wrong", f"VENV={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("error: no image 'wrong'\n    hint: known are ")
    assert (tmp_path / "asked").read_text("utf-8") == "-m builder render wrong\n"
