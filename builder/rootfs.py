"""The root file system under a stand-in base: Debian with a real `hipcc`, from the mirror that this machine uses."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from builder.errors import Problem, StandInError
from builder.told import asking
from builder.trace import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from builder.engine import Engine

ELSEWHERE = "--stand-in-from IMAGE takes another image's root instead"


def read(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def run(command: Sequence[str], failure: str, hint: str | None = None, **options: Any) -> str:  # noqa: ANN401
    with asking(shlex.join(map(str, command))):
        done = subprocess.run(list(command), capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise StandInError(Problem(f"{failure}\n{done.stderr.strip()[-2000:]}", hint=hint))
    return str(done.stdout)


def reference(standins: Path) -> str:
    """The tag of the root file system: it carries the digest of what it is made by."""
    return f"vime-images/standin-root:{hashlib.sha256((standins / 'root.yaml').read_bytes()).hexdigest()[:12]}"


def make(engine: Engine, standins: Path, watch: Callable[[Event], None]) -> None:
    """Have the root file system in the engine, unless it is there.

    Raises:
        StandInError: where this machine cannot make it.
    """
    if engine.image_id(reference(standins)):
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise StandInError(Problem("only root on a Debian makes the stand-in's root file system", hint=ELSEWHERE))
    if not shutil.which("mmdebstrap"):
        watch(Event("stand-in", "installing mmdebstrap"))
        _install_mmdebstrap()
    root, mirror = read(standins / "root.yaml"), _mirror()
    what = f"Debian {root['suite']} with {', '.join(root['next_packages'])}"
    watch(Event("stand-in", f"making the root file system: {what}"))
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        run([*_mmdebstrap(root, mirror), root["suite"], archive.name, mirror], "mmdebstrap failed", ELSEWHERE)
        watch(Event("stand-in", f"importing {Path(archive.name).stat().st_size / 1e9:.1f} GB"))
        engine.import_root(archive, reference(standins), ["CMD bash"])


def _install_mmdebstrap() -> None:
    run(["apt-get", "--quiet=2", "update"], "apt has no package lists")
    install = ["apt-get", "--quiet=2", "--yes", "--no-install-recommends", "install", "mmdebstrap"]
    silent = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    run(install, "mmdebstrap cannot be installed", ELSEWHERE, env=silent)


def _mirror() -> str:
    """The mirror that this machine's own apt uses."""
    mirrors = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Label: Debian", "Component: main"], "apt")
    if not mirrors.strip():
        raise StandInError(Problem("this machine's apt knows no mirror of Debian", hint=ELSEWHERE))
    return mirrors.split()[0]


def _mmdebstrap(root: Mapping[str, Any], mirror: str) -> list[str]:
    """Its words for a root of one suite with some packages of the next."""
    line = f"deb {mirror} {root['next_suite']} main"
    take = f"apt-get --yes --no-install-recommends --target-release {root['next_suite']} install"
    hooks = (
        f"echo '{line}' > \"$1\"/etc/apt/sources.list.d/next.list",
        'chroot "$1" apt-get --quiet=2 update',
        f'chroot "$1" {take} {" ".join(root["next_packages"])}',
        'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin',
    )
    return [
        *("mmdebstrap", "--variant=minbase", f"--include={','.join(root['packages'])}", "--quiet"),
        *(f"--customize-hook={hook}" for hook in hooks),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in root["excluded"]),
    ]
