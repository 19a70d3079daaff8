"""Peers of the package index, each in an environment of its own under .cache/bench/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from benchmarks.timing import ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

CACHE = ROOT / ".cache" / "bench"


class PeerError(Exception):
    """A peer that cannot be installed, or does not do its work; why, in one line."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One of peers.yaml."""

    packages: list[str]
    command: str = ""
    more: str = ""
    is_library: bool = False
    files: dict[str, str] = field(default_factory=dict)

    def run(self, folder: Path, scratch: Path) -> None:
        """Have it do its work once, in a folder with its files; what it keeps, it keeps in a folder beside that.

        Raises:
            PeerError: where it does not.
        """
        program, *words = self.command.split()
        home = scratch.with_name(f"{scratch.name}-home")  # bentoml packs its folder, and would pack what it has kept
        home.mkdir(exist_ok=True)
        environment = os.environ | {"HOME": str(home), "BENTOML_DO_NOT_TRACK": "True"}
        try:
            run([folder / "bin" / program, *words], cwd=scratch, environment=environment)
        except SystemExit as error:
            raise PeerError(" ".join(str(error).split())[-300:]) from error

    def write(self, scratch: Path) -> None:
        for name, text in self.files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


def known() -> dict[str, Peer]:
    read = yaml.safe_load((ROOT / "benchmarks" / "peers.yaml").read_text("utf-8"))
    return {name: Peer(**entry) for name, entry in read.items()}


def installed(name: str, peer: Peer) -> Path:
    """The environment of a peer, made where it is not there yet.

    Raises:
        PeerError: where it cannot be.
    """
    folder, mark = CACHE / name, CACHE / name / "packages.txt"
    wanted = "\n".join(peer.packages)
    if mark.is_file() and mark.read_text("utf-8") == wanted:
        return folder
    sys.stderr.write(f"installing {name} ...\n")
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", folder])
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *peer.packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")] or ["unknown"]
        raise PeerError(f"pip cannot install {', '.join(peer.packages)}: {said[-1].removeprefix('ERROR: ')}")
    mark.write_text(wanted, "utf-8")
    return folder
