"""Run one case after another, each in a fresh copy of one environment: here, and in a container as it is.

The input is JSON: the folders that are put back before every case, and the cases. The standard library is enough.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SHELL = ["/bin/bash", "-euo", "pipefail", "-c"]  # as in the Dockerfile


def restore(folders: dict[str, str]) -> None:
    """Put every folder back as it was when its copy was made."""
    for folder, copy in folders.items():
        shutil.rmtree(folder, ignore_errors=True)
        if Path(copy).exists():
            shutil.copytree(copy, folder, symlinks=True)


def state(site: Path) -> dict[str, Any]:
    """What is installed there: versions by name, and digests of files; pip's own left out."""
    versions: dict[str, list[str]] = {}
    for info in sorted(site.glob("*-info")):
        name, _, version = info.stem.partition("-")
        versions.setdefault(re.sub(r"[-_.]+", "-", name).lower(), []).append(version)
    files = {}
    for folder, folders, names in os.walk(site):
        folders[:] = [name for name in folders if name not in {"__pycache__", "pip"}]
        for name in names:
            path = Path(folder) / name
            if path.is_file():
                files[str(path.relative_to(site))] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return {"versions": versions, "files": files}


def run(case: dict[str, Any], folders: dict[str, str], site: Path) -> dict[str, Any]:
    """One case: what it said, how it ended, and the environment before and after."""
    restore(folders)
    for pattern in case["remove"]:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, text in case["write"].items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, text in case["files"].items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    before = state(site)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_", "PYTHON"))}
    done = subprocess.run(
        [*SHELL, case["script"]],
        env=kept | case["environment"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    note = Path(case["environment"]["TRAP_NOTE"])
    noted = note.read_text(encoding="utf-8") if note.exists() else ""
    after = state(site)
    for path in [path for path, digest in before["files"].items() if after["files"].get(path) == digest]:
        del before["files"][path], after["files"][path]
    return {"code": done.returncode, "said": done.stdout, "noted": noted, "before": before, "after": after}


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {name: run(case, given["folders"], Path(given["site"])) for name, case in given["cases"].items()}
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
