"""What the shell completes, asked as bash asks."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from copies import Project, copied

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    found = copied(tmp_path_factory.mktemp("completion"))
    report: Path = found.root / "build/rocm7.14-gfx942/report.json"
    report.parent.mkdir(parents=True)
    report.touch()
    (found.root / "build/rocm7.14-gfx950").mkdir()  # begun, never built
    return found


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("vime-images rend", {"render"}),
        ("vime-images render rocm7.1", {"rocm7.14"}),
        ("vime-images preflight ", {"rocm7.14", "rocm7.2"}),
        ("vime-images facts primus", {"primus-v26.4"}),
        ("vime-images image rocm7.14 --gpu-target gfx95", {"gfx950"}),
        ("vime-images verify vime:", {"vime:rocm7.14-gfx942"}),
        ("vime-images diff v", {"vime:rocm7.14-gfx942"}),
        ("vime-images diff rocm7.2", {"rocm7.2"}),
        ("vime-images check nothing", set()),
    ],
)
def test_the_shell_completes(project: Project, line: str, wanted: set[str]) -> None:
    words = line.split(" ")
    environment = os.environ | {
        "PYTHONPATH": str(project.root),
        "_VIME_IMAGES_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    program = "import sys; sys.argv = ['vime-images']; from builder.cli import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project.root, env=environment, capture_output=True, text=True, check=False
    )
    assert {found.partition(",")[2] for found in done.stdout.splitlines() if found} == wanted, done.stderr
