"""Small deterministic wheels, a PEP 503 index of them, and Python environments that stand in for an image."""

from __future__ import annotations

import base64
import compileall
import ensurepip
import hashlib
import io
import json
import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

INSIDE = Path(__file__).parents[2] / "builder" / "inside"
ROCM = "2.12.0+rocm7.14.0a20260608"
HIP = "from typing import Optional\ncuda: Optional[str] = None\nhip: Optional[str] = '7.14.60850'\n"


@dataclass(frozen=True)
class Wheel:
    """One distribution; without `files` it brings one module of its name."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        return f"{canonicalize_name(self.name).replace('-', '_')}-{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.stem}-py3-none-any.whl"

    def contents(self) -> dict[str, bytes]:
        """Path and bytes of everything, RECORD last, in an order that never changes."""
        info = f"{self.stem}.dist-info"
        module = self.stem.partition("-")[0]
        needs = "".join(f"Requires-Dist: {text}\n" for text in self.requires)
        texts = dict(self.files or {f"{module}/__init__.py": f"__version__ = {self.version!r}\n"})
        texts[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n{needs}"
        texts[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        found = {path: text.encode() for path, text in sorted(texts.items())}
        rows = [f"{path},sha256={_hash(content)},{len(content)}\n" for path, content in found.items()]
        return found | {f"{info}/RECORD": ("".join(rows) + f"{info}/RECORD,,\n").encode()}

    def archive(self) -> bytes:
        """The wheel file: the same bytes for the same distribution, always."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, content in self.contents().items():
                archive.writestr(zipfile.ZipInfo(path), content)
        return buffer.getvalue()

    def unpack(self, site: Path) -> None:
        """Install into `site` as pip does."""
        for path, content in self.contents().items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(content)


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def index(folder: Path, wheels: Iterable[Wheel]) -> str:
    """Write a package index (PEP 503, with hashes) into `folder`; its address comes back."""
    pages: dict[str, str] = {}
    for wheel in wheels:
        page = folder / canonicalize_name(wheel.name)
        page.mkdir(parents=True, exist_ok=True)
        content = wheel.archive()
        (page / wheel.file_name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        link = f'<a href="{wheel.file_name}#sha256={digest}">{wheel.file_name}</a>\n'
        pages[page.name] = pages.get(page.name, "<!DOCTYPE html>\n") + link
    for name, text in pages.items():
        (folder / name / "index.html").write_text(text, encoding="utf-8")
    return folder.as_uri()


@cache
def pip_files(folder: Path, version: str) -> Path:
    """A folder with an unpacked pip of that version (`bundled`: the one that Python brings), or none."""
    target = folder / f"pip-{version}"
    target.mkdir(parents=True)
    if version == "bundled":
        wheel = next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    else:
        name = "pip" if version == "newest" else f"pip=={version}"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(target), name]
        subprocess.run(command, check=True, capture_output=True)
        wheel = next(target.glob("pip-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    compileall.compile_dir(target, quiet=2)  # the environments share it, and start it often
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
        (site / path.name).symlink_to(path)
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
