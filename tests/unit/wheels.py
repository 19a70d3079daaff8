"""Distributions with text in them, pips of several versions, and environments that stand in for an image."""

from __future__ import annotations

import compileall
import ensurepip
import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from builder import wheelhouse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

INSIDE = Path(__file__).parents[2] / "builder" / "inside"
ROCM = "2.12.0+rocm7.14.0a20260608"
HIP = "from typing import Optional\ncuda: Optional[str] = None\nhip: Optional[str] = '7.14.60850'\n"


@dataclass(frozen=True)
class Wheel:
    """One distribution, its files as text; without `files` it brings one module of its name."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def real(self) -> wheelhouse.Wheel:
        module = canonicalize_name(self.name).replace("-", "_")
        texts = self.files or {f"{module}/__init__.py": f"__version__ = {self.version!r}\n"}
        files = {path: text.encode() for path, text in texts.items()}
        return wheelhouse.Wheel(name=self.name, version=self.version, files=files, requires=self.requires)

    def unpack(self, site: Path) -> None:
        self.real.unpack(site)


def index(folder: Path, wheels: Iterable[Wheel]) -> str:
    """Write a package index into `folder`; its address comes back."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        wheel.real.write(folder / "files")
    wheelhouse.write_index(folder)
    return (folder / "simple").as_uri()


@cache
def pip_files(folder: Path, version: str) -> Path:
    """A folder with an unpacked pip of that version (`bundled`: the one that Python brings); made once, then kept."""
    target = folder / f"pip-{version}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        place = Path(ensurepip.__file__).parent / "_bundled"
        if version != "bundled":
            place = Path(scratch)
            name = "pip" if version == "newest" else f"pip=={version}"
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", scratch, name]
            subprocess.run(command, check=True, capture_output=True)
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(next(place.glob("pip-*.whl"))) as archive:
            archive.extractall(unpacked)
        compileall.compile_dir(unpacked, quiet=2)  # the environments share it, and start it often
        try:
            unpacked.rename(target)
        except OSError:
            if not target.is_dir():  # else another process has made it meanwhile
                raise
    return target


@dataclass(frozen=True)
class Image:
    """An environment with a pip of its own, and the folder that the guards write to."""

    root: Path
    python: Path
    site: Path

    def environment(self) -> dict[str, str]:
        """This process's, without the machine's own pip configuration."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_", "PYTHON"))}
        kept |= {"HOME": str(self.root), "XDG_CONFIG_DIRS": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        return kept | {"PIP_CONFIG_FILE": str(self.root / "pip.conf")}

    def run(self, program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run an in-image program there."""
        return self.start(str(INSIDE / f"{program}.py"), *arguments, "--root", str(self.root), **environment)

    def start(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python."""
        command, variables = [str(self.python), *arguments], self.environment() | environment
        return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)

    def write(self, path: str, content: Any) -> Path:
        """Write text, or a value as JSON, below the root."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return target

    def read(self, path: str) -> Any:
        return json.loads((self.root / path).read_text(encoding="utf-8"))

    def version(self, name: str) -> str | None:
        """The installed version of a distribution, or none."""
        stem = canonicalize_name(name).replace("-", "_")
        found = [path.stem.partition("-")[2] for path in self.site.glob(f"{stem}-*.dist-info")]
        return ", ".join(sorted(found)) or None


def image(folder: Path, pip: Path, wheels: Iterable[Wheel]) -> Image:
    """Make an environment in `folder` that holds `wheels`; its pip is a link to an unpacked one."""
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    for path in (path for path in pip.glob("pip*") if path.is_dir()):
        (site / path.name).symlink_to(path.resolve())
    for wheel in wheels:
        wheel.unpack(site)
    root = folder / "vime-image"
    root.mkdir()
    return Image(root, folder / "venv" / "bin" / "python", site)


# A base as it should be: torch of the ROCm family, sealed libraries, and one that nobody seals.
BASE = (
    Wheel(
        "torch",
        ROCM,
        ("triton==3.7.0+gitb4e20bbe", "typing-extensions", "cupy; extra == 'cuda'"),
        {
            "torch/__init__.py": "import torch_is_never_imported\n",
            "torch/version.py": HIP,
            "torch/lib/a.txt": "a\n",
        },
    ),
    Wheel("torchvision", "0.27.0+rocm7.14.0a20260608", ("torch==2.12.0", "pillow")),
    Wheel("triton", "3.7.0+gitb4e20bbe"),
    Wheel("amd-aiter", "0.1.12", (), {"aiter/__init__.py": "", "tests/__init__.py": ""}),
    Wheel("rocm-sdk-core", "7.14.0", (), {"_rocm_sdk_core/__init__.py": ""}),
    Wheel("rocm-sdk-devel", "7.14.0", (), {"_rocm_sdk_devel/__init__.py": ""}),
    Wheel("typing-extensions", "4.15.0"),
    Wheel("plain", "1.0", (), {"plain/__init__.py": "", "tests/__init__.py": ""}),
)
SEALED = ("torch", "torchvision", "triton", "amd-aiter", "rocm-sdk-*")
