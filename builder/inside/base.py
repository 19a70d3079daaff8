"""Read a base: its interpreter that imports torch, its distributions, tools, ROCm and device code, as one JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

FOLDERS = ("/opt/*/bin", "/usr/local/bin", "/usr/bin")  # where interpreters stand that are not on PATH
TORCH = """
import json, torch
flags = getattr(getattr(torch, "_C", None), "_cuda_getArchFlags", None)
print(json.dumps({"file": torch.__file__, "flags": flags() if flags else None}))
"""
TOOL = re.compile(r"[\w.+\[-]+", re.ASCII)
TARGET = re.compile(r"gfx[0-9a-f]{3,4}(?![0-9a-f])")  # of `gfx942:sramecc+`, the part before its features
TIME_LIMIT_S = 180


def interpreters(first: list[str]) -> list[str]:
    """List the interpreters of the image, one for each folder, those that were named before all others."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(":") if folder]
    folders += [folder for pattern in FOLDERS for folder in sorted(Path("/").glob(pattern[1:]))]
    found: dict[Path, str] = {}
    for path in [*map(Path, first), *(folder / name for folder in folders for name in ("python", "python3"))]:
        if path.is_absolute() and os.access(path, os.X_OK):
            found.setdefault(path.parent, str(path))
    return list(found.values())


def said(command: list[str]) -> tuple[int, str, str]:
    """Run a command; its exit code and what it wrote."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                              timeout=TIME_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, "", str(error)
    return done.returncode, done.stdout, done.stderr


def importer(candidates: list[str]) -> tuple[str, dict[str, Any] | None, str]:
    """Choose the first interpreter that imports torch, else the first: with what torch said, or why there is none."""
    faults = []
    for python in candidates:
        code, output, errors = said([python, "-c", TORCH])
        if code == 0 and output.strip():
            return python, json.loads(output.splitlines()[-1]), ""
        faults.append(f"{python}: {(errors.strip().splitlines() or [f'exit code {code}'])[-1]}")
    return candidates[0], None, "; ".join(faults)


def distributions() -> dict[str, Any]:
    """Describe what is installed: of two copies, the one that is imported."""
    from importlib import metadata  # noqa: PLC0415 (an old interpreter may only have to find another)

    import seal  # noqa: PLC0415
    from pip._vendor.packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415
    from pip._vendor.packaging.utils import canonicalize_name  # noqa: PLC0415

    found: dict[str, Any] = {}
    for dist in metadata.distributions():
        name = canonicalize_name(dist.metadata["Name"] or "")
        if not name or name in found:
            continue
        requires = []
        for text in dist.requires or []:
            try:
                need = Requirement(text)
            except InvalidRequirement:
                print(f"{name}: {text!r} is no requirement", file=sys.stderr)
                continue
            if not need.marker or need.marker.evaluate({"extra": ""}):
                need.marker = None
                requires.append(str(need))
        try:
            fields = seal.version_fields(name)
        except (OSError, SyntaxError, ValueError, metadata.PackageNotFoundError):
            fields = {}
        found[name] = {"version": dist.version, "requires": sorted(requires), "flavour": flavour(fields)}
    return found


def flavour(fields: dict[str, Any]) -> str | None:
    """Name what a distribution was built for, by the fields of its version.py."""
    if not {"hip", "cuda"} & set(fields):
        return None
    return "rocm" if fields.get("hip") else "cuda" if fields.get("cuda") else "cpu"


def device_code(torch: dict[str, Any]) -> list[str] | None:
    """List the GPU targets that torch has code for: by its files, else by what it was built with; None: not told."""
    import device  # noqa: PLC0415

    found = set[str]()
    for library in sorted((Path(torch["file"]).parent / "lib").glob("libtorch_hip*.so")):
        try:
            found |= device.targets(library)
        except (OSError, device.Unreadable, device.Torn) as reason:  # noqa: PERF203 (a handful of libraries)
            print(f"{library}: {reason}", file=sys.stderr)
    return sorted(found or TARGET.findall(torch["flags"] or "")) or None


def rocm_root() -> str | None:
    """Find the folder that ROCm's programs and libraries stand in."""
    purelib = sysconfig.get_paths()["purelib"]
    places = [os.environ.get("ROCM_PATH"), os.environ.get("ROCM_HOME"), f"{purelib}/_rocm_sdk_devel", "/opt/rocm"]
    for place in filter(None, places):
        if any(Path(place, part).exists() for part in ("bin/hipcc", "lib/libamdhip64.so")):
            return place
    return None


def tools() -> list[str]:
    """List the names on PATH that can be called."""
    found = set[str]()
    for folder in filter(None, os.environ.get("PATH", "").split(":")):
        try:
            entries = [entry for entry in os.scandir(folder) if TOOL.fullmatch(entry.name)]
        except OSError:
            continue
        found |= {entry.name for entry in entries if not entry.is_dir() and os.access(entry.path, os.X_OK)}
    return sorted(found)


def system() -> str | None:
    """Name the distribution of Linux and its version."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in text.splitlines())}
    return " ".join(filter(None, (fields.get("ID"), fields.get("VERSION_ID")))) or None


def pip_check() -> list[str] | None:
    """Ask pip what does not fit together; None where it cannot say."""
    code, output, _ = said([sys.executable, "-m", "pip", "check"])
    if code == 1:
        return sorted(filter(None, output.splitlines())) or None
    return None if code else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("find", "read"))
    parser.add_argument("--python", action="append", default=[], help="an interpreter to try first")
    parser.add_argument("--nonce", required=True, help="what the result begins with")
    parser.add_argument("--torch", default="null", help="of read: what find has seen of it")
    given = parser.parse_args()
    if given.command == "find":
        python, torch, fault = importer(interpreters(given.python))
        if fault:
            print(f"no interpreter imports torch: {fault}", file=sys.stderr)
        read = ["read", "--nonce", given.nonce, "--torch", json.dumps(torch)]
        os.execv(python, [python, __file__, *read])  # noqa: S606 (no shell is wanted)
    torch = json.loads(given.torch)
    found = {
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "site_packages": sysconfig.get_paths()["purelib"],
        },
        "system": system(),
        "torch": bool(torch),
        "distributions": distributions(),
        "device_code": device_code(torch) if torch else None,
        "rocm_root": rocm_root(),
        "tools": tools(),
        "pip_check": pip_check(),
    }
    print(given.nonce + json.dumps(found))


if __name__ == "__main__":
    main()
