"""A file that the system refuses, of each that a command reads or writes: which, why and what to do; no fault of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from copies import Project, copied
from manifests import REAL

from builder.errors import MachineError, ManifestError, RenderError, StaleError, UnwritableError

NAME = REAL.stem
MANIFEST, DOCKERFILE = f"images/{NAME}.yaml", f"dockerfiles/Dockerfile.{NAME}"
SHARED, FACTS, LOCK = "images/shared/vime.yaml", "images/bases/primus-v26.4.yaml", f"images/{NAME}.lock"
# Root may do what no permission allows, unless it is without these.
AS_A_USER = [
    shutil.which("setpriv") or "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
]


@dataclass(frozen=True)
class Place:
    """A project in which one file is another than it should be."""

    project: Project

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of somebody whom permissions concern, and no engine."""
        root = self.project.root
        done = subprocess.run(
            [*(AS_A_USER if os.geteuid() == 0 else []), sys.executable, "-m", "builder", *words],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root), "DOCKER_HOST": "unix:///nowhere.sock"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert "a fault of vime-images" not in done.stderr
        return done


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(copied(tmp_path))


def folder(path: Path) -> None:
    """A folder in a file's place."""
    path.unlink(missing_ok=True)
    (path / "with").mkdir(parents=True)


def file(path: Path) -> None:
    """A file in a folder's place."""
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(exist_ok=True)
    path.write_text("no folder\n")


def closed(path: Path) -> None:
    """What nobody may read or write."""
    if not path.exists():
        path.touch() if path.suffix else path.mkdir()
    path.chmod(0)


def read_only(path: Path) -> None:
    path.chmod(0o555)


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def circle(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path)


def letters(path: Path) -> None:
    """No text."""
    path.write_bytes(b"\xff\xfe\x00")


Change = Callable[[Path], None]
# A file, what becomes of it, and the command that then ends with a code and such words.
REFUSED: list[tuple[str, Change, str, int, str]] = [
    *(
        (path, change, "check", ManifestError.exit_code, path)
        for path in (MANIFEST, SHARED, FACTS)
        for change in (folder, closed, circle)
    ),
    *((LOCK, change, "check", ManifestError.exit_code, LOCK) for change in (folder, closed, letters)),
    *(
        ("images", change, "check", UnwritableError.exit_code, "cannot read or write ")
        for change in (closed, file, gone)
    ),
    (DOCKERFILE, closed, "check", UnwritableError.exit_code, f"{DOCKERFILE}: permission denied"),
    (DOCKERFILE, folder, "check", StaleError.exit_code, DOCKERFILE),
    (DOCKERFILE, folder, "render", UnwritableError.exit_code, f"cannot write {DOCKERFILE}: is a directory"),
    ("dockerfiles", file, "render", UnwritableError.exit_code, f"cannot write {DOCKERFILE}: "),
    ("dockerfiles", closed, "render", UnwritableError.exit_code, f"cannot write {DOCKERFILE}: permission denied"),
    ("build", file, "render", UnwritableError.exit_code, f"cannot write build/{NAME}/lock: "),
    ("build", closed, "render", UnwritableError.exit_code, f"cannot write build/{NAME}/lock: permission denied"),
    (
        f"build/{NAME}/lock",
        folder,
        "render",
        UnwritableError.exit_code,
        f"cannot write build/{NAME}/lock: is a directory",
    ),
    *(
        ("templates/base.j2", change, "render", UnwritableError.exit_code, "templates/base.j2: ")
        for change in (closed, folder)
    ),
    ("templates/base.j2", gone, "render", RenderError.exit_code, "'base.j2' not found"),
    ("builder/inside/seal.py", closed, "render", UnwritableError.exit_code, "seal.py: permission denied"),
    ("images/bases", read_only, "facts", UnwritableError.exit_code, f"cannot write {FACTS}: permission denied"),
    ("images", read_only, "lock", UnwritableError.exit_code, f"cannot write {LOCK}: permission denied"),
    *((".cache", change, "patches", UnwritableError.exit_code, ".cache/git") for change in (closed, file)),
    *((".cache", change, "preflight", UnwritableError.exit_code, ".cache/") for change in (closed, file)),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[2]} {case[0]} {case[1].__name__}")
def test_a_file_that_is_refused_is_named_with_what_to_do(place: Place, case: tuple[str, Change, str, int, str]) -> None:
    path, change, command, code, said = case
    there = place.project.root / path
    there.parent.mkdir(parents=True, exist_ok=True)
    change(there)
    try:
        named = Path(FACTS).stem if command == "facts" else NAME
        done = place.run(command, named, *(["--offline"] if command in {"patches", "preflight"} else []))
    finally:
        if there.exists():
            there.chmod(0o755)
    assert said in done.stderr
    assert "    hint: " in done.stderr
    assert done.returncode == code


def test_a_folder_that_is_gone_under_its_user_is_no_hindrance(tmp_path: Path) -> None:
    project = copied(tmp_path)
    script = f'mkdir "{tmp_path}/gone" && cd "{tmp_path}/gone" && rmdir "{tmp_path}/gone" && exec "$@"'
    words = ["bash", "-c", script, "-", sys.executable, "-m", "builder", "check", NAME]
    environment = os.environ | {"PYTHONPATH": str(project.root)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{NAME}: ok\n"), done.stderr


def test_a_disk_that_takes_no_more_output_is_told(place: Place) -> None:
    words = [sys.executable, "-m", "builder", "check"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words, cwd=place.project.root, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr.startswith(
        "error: cannot read or write: no space left on device\n    hint: make room on its disk: "
    )
    assert done.returncode == UnwritableError.exit_code


@pytest.mark.parametrize(
    "words",
    [("patches", NAME), ("preflight", NAME), ("matrix", "--changed-since", "HEAD"), ("diff", f"{NAME}@HEAD", NAME)],
)
def test_without_git_its_commands_say_that_and_how_to_have_it(
    place: Place, words: tuple[str, ...], tmp_path: Path
) -> None:
    for program in ("uv", "python3"):
        if found := shutil.which(program):
            (tmp_path / program).symlink_to(found)
    done = place.run(*words, PATH=f"{tmp_path}")
    assert done.stderr.endswith(
        "error: this machine has no program `git`\n    hint: install it, as by: apt-get install git\n"
    )
    assert done.returncode == MachineError.exit_code
