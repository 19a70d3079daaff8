"""What commands write: whole files, one writer at a time, and a clear word where nothing can be written."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from copies import Project, copied
from manifests import REAL, ROOT

from builder import errors

NAME = REAL.stem
PYTHONS = sorted({"3.10", "3.11", "3.12", "3.13"} - {f"3.{sys.version_info.minor}"})
MOUNT, READ_ONLY, REMOUNT = ctypes.CDLL(None, use_errno=True), 1, 32


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return copied(tmp_path)


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    """A small disk of memory at a place; only root may have one."""
    place.mkdir(exist_ok=True)
    if MOUNT.mount(b"tmpfs", bytes(place), b"tmpfs", 0, options.encode()):
        pytest.skip(f"no disk of its own: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        assert MOUNT.umount2(bytes(place), 2) == 0


def written(project: Project) -> dict[str, bytes]:
    """The files of images, by path; none of them half, and none beside them."""
    folders = [project.root / "dockerfiles", project.root / "images"]
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(project.root)): path.read_bytes() for path in paths}


def test_what_can_be_read_only_can_be_checked_and_is_not_written(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    with mounted(place, "size=64m"):
        project = copied(place)
        project.edit(f"images/{NAME}.yaml", "summary: vLLM", "summary: today vLLM")
        assert project.run("render", NAME).returncode == 0
        before = written(project)
        assert MOUNT.mount(b"tmpfs", bytes(place), b"tmpfs", READ_ONLY | REMOUNT, None) == 0
        assert project.run("check").returncode == 0
        assert project.run("render", "--check").returncode == 0
        said = project.refusal(errors.UnwritableError, "render", NAME)
        assert said.startswith(f"error: cannot write build/{NAME}/lock: read-only file system\n    hint: "), said
        assert written(project) == before


def test_a_full_disk_changes_nothing_and_is_named(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    with mounted(place, "size=64m"):
        project = copied(place)
        project.edit(f"images/{NAME}.yaml", "summary: vLLM", "summary: today vLLM")
        assert project.run("render", NAME, "--check").returncode == errors.StaleError.exit_code
        (project.root / "build" / NAME).mkdir(parents=True)
        with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        before = written(project)
        said = project.refusal(errors.UnwritableError, "render", NAME)
        assert "no space left on device" in said
        assert written(project) == before
        (place / "filler").unlink()
        assert project.run("render", NAME).returncode == 0
        assert project.run("check").returncode == 0


@pytest.mark.parametrize("command", [("preflight", NAME), ("verify", "a:b"), ("probe", "a:b")], ids=" ".join)
def test_a_report_that_cannot_be_written_is_refused_before_the_work(project: Project, command: tuple[str, ...]) -> None:
    (project.root / "file").touch()
    said = project.refusal(errors.UnwritableError, *command, "--report", "file/report.json")
    assert said.startswith("error: cannot write file/report.json: "), said
    (project.root / "folder.json").mkdir()
    said = project.refusal(errors.UnwritableError, *command, "--report", "folder.json")
    assert said.startswith("error: cannot write folder.json: is a directory\n"), said


def test_a_render_waits_for_nobody_and_says_who_is_at_the_manifest(project: Project) -> None:
    code = f"from builder.project import alone\nwith alone('manifest:{NAME}'): print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=project.root,
        env=os.environ | {"PYTHONPATH": str(project.root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        said = project.refusal(errors.BusyError, "render", NAME)
        assert f"manifest:{NAME} is being worked on by process {holder.pid} since " in said
        assert project.run("render", NAME, "--check").returncode == 0, "whoever only reads is in nobody's way"
        holder.kill()
    assert project.run("render", NAME).returncode == 0, "the lock has gone with its process"


def test_renders_at_once_leave_a_whole_file(project: Project) -> None:
    project.edit(f"images/{NAME}.yaml", "summary: vLLM", "summary: today vLLM")
    command = [sys.executable, "-m", "builder", "render", NAME]
    environment = os.environ | {"PYTHONPATH": str(project.root)}
    at_once = [
        subprocess.Popen(command, cwd=project.root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [process.communicate()[1].decode() for process in at_once]
    assert {process.returncode for process in at_once} <= {0, errors.BusyError.exit_code}, said
    assert 0 in {process.returncode for process in at_once}
    assert project.run("check", NAME).returncode == 0


@pytest.mark.parametrize("locale", ["C", "xx_YY.NOPE"])
def test_spaces_and_letters_of_any_script_in_a_path_are_no_hindrance(tmp_path: Path, locale: str) -> None:
    """In any locale, also where Python is kept from taking UTF-8 for granted."""
    folder = tmp_path / "é ü 漢字 'a' \"b\" $HOME *"
    folder.mkdir()
    project = copied(folder)
    environment = {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(project.root)}
    for words in (["render", NAME], ["check", NAME], ["check", "ü"]):
        done = subprocess.run(
            [sys.executable, "-m", "builder", *words],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
        wanted = errors.UsageError.exit_code if "ü" in words else 0
        assert done.returncode == wanted, done.stderr.decode(errors="replace")


@pytest.mark.parametrize("umask", [0o000, 0o077], ids=oct)
def test_neither_umask_nor_line_ends_nor_the_order_of_files_changes_what_is_written(
    project: Project, umask: int
) -> None:
    """A checkout with CRLF in every text, its files made in another order, under another name."""
    wanted = {path.name: path.read_bytes() for path in (ROOT / "dockerfiles").iterdir()}
    turned = project.root.parent / "turned"
    for path in sorted(project.root.rglob("*"), reverse=True):
        if path.is_file():
            there = turned / path.relative_to(project.root)
            there.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes()
            text = path.suffix in {".yaml", ".j2", ".py", ".md"} and b"\r" not in content
            there.write_bytes(content.replace(b"\n", b"\r\n") if text else content)
    shutil.rmtree(turned / "dockerfiles")
    done = subprocess.run(
        [sys.executable, "-m", "builder", "render"],
        cwd=turned,
        env=os.environ | {"PYTHONPATH": str(turned), "PYTHONDONTWRITEBYTECODE": "1"},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in (turned / "dockerfiles").iterdir()} == wanted
    assert {path.stat().st_mode & 0o777 for path in (turned / "dockerfiles").iterdir()} == {0o644}


@pytest.mark.parametrize("version", PYTHONS)
def test_every_python_writes_the_same_bytes(project: Project, tmp_path: Path, version: str) -> None:
    """One of this machine, of its pyenv, or one that uv can get; with the packages that are locked."""
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    environment = os.environ | {
        "PATH": os.pathsep.join([os.environ["PATH"], *map(str, pyenv)]),
        "PYTHONPATH": str(project.root),
        "PYTHONHASHSEED": "7",
    }
    uv, python = [sys.executable, "-m", "uv", "--quiet"], tmp_path / "python" / "bin" / "python"
    command = [*uv, "venv", "--no-project", "--python", version, str(tmp_path / "python")]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no Python {version}: {made.stderr.strip()}")
    locked = ["--require-hashes", "--requirement", str(ROOT / "requirements" / "runtime.txt")]
    subprocess.run([*uv, "pip", "install", "--python", str(python), *locked], env=environment, check=True)
    shutil.rmtree(project.root / "dockerfiles")
    done = subprocess.run(
        [python, "-m", "builder", "render"],
        cwd=project.root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted = {path.name: path.read_bytes() for path in (ROOT / "dockerfiles").iterdir()}
    assert {path.name: path.read_bytes() for path in (project.root / "dockerfiles").iterdir()} == wanted
