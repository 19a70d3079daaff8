"""A root file system of a few megabytes, made of this machine's own programs."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from builder.engine import Engine

PROGRAMS = (
    "bash",
    "cat",
    "cp",
    "echo",
    "env",
    "ls",
    "mkdir",
    "seq",
    "sha256sum",
    "sleep",
    "timeout",
    "touch",
    "true",
    "yes",
)


def libraries(program: str) -> set[str]:
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return set(re.findall(r"/\S+", done.stdout))


@pytest.fixture(scope="session")
def tiny(engine: Engine) -> str:
    """An image with a shell and a handful of programs; its reference."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        found = {name: shutil.which(name) or pytest.fail(f"this machine has no {name}") for name in PROGRAMS}
        for name, program in found.items():
            archive.add(Path(program).resolve(), f"bin/{name}")
        for library in sorted(set().union(*map(libraries, found.values()))):
            archive.add(Path(library).resolve(), library.lstrip("/"))
        for folder in ("tmp", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
        link = tarfile.TarInfo("bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "bash"
        archive.addfile(link)
    body.seek(0)
    reference = f"vime-images-test/tiny:{uuid.uuid4().hex[:8]}"
    engine.import_root(body, reference, ["ENV PATH=/bin"])
    return reference
