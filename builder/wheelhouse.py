"""Stand-in distributions as real wheels, and a package index of them: PEP 427 and PEP 503, deterministic."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.errors import Problem, StandInError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

TIME = (2026, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One distribution: its files by their place in site-packages, and what it requires."""

    name: str
    version: str
    files: Mapping[str, bytes]
    requires: Sequence[str] = ()
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)
    as_source: bool = False

    def requirements(self, extras: frozenset[str]) -> Iterator[Requirement]:
        """What it requires when it is asked for with `extras`."""
        yield from map(Requirement, self.requires)
        for extra in sorted(extras & set(self.extras)):
            yield from map(Requirement, self.extras[extra])

    def write(self, folder: Path) -> Path:
        """The wheel, or the source archive, in `folder`; its path."""
        return self._write_source(folder) if self.as_source else self._write_wheel(folder)

    def _metadata(self) -> str:
        lines = ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in self.requires]
        for extra, requirements in self.extras.items():
            lines.append(f"Provides-Extra: {extra}")
            lines += [f'Requires-Dist: {requirement}; extra == "{extra}"' for requirement in requirements]
        return "\n".join(lines) + "\n"

    @property
    def stem(self) -> str:
        """The first two parts of its file's name."""
        return f"{canonicalize_name(self.name).replace('-', '_')}-{self.version}"

    def contents(self) -> dict[str, bytes]:
        """Path and bytes of all that the wheel holds, RECORD last, as pip would leave it in site-packages."""
        files = dict(self.files) | {
            f"{self.stem}.dist-info/METADATA": self._metadata().encode(),
            f"{self.stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{name},{_record_hash(content)},{len(content)}\n" for name, content in files.items())
        return files | {f"{self.stem}.dist-info/RECORD": f"{record}{self.stem}.dist-info/RECORD,,\n".encode()}

    def unpack(self, site: Path) -> None:
        """Put it where Python imports from, without pip."""
        for name, content in self.contents().items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_bytes(content)

    def _write_wheel(self, folder: Path) -> Path:
        path = folder / f"{self.stem}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in self.contents().items():
                entry = zipfile.ZipInfo(name, TIME)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content)
        return path

    def _write_source(self, folder: Path) -> Path:
        stem = f"{self.name}-{self.version}"
        files = {
            "PKG-INFO": self._metadata().encode(),
            "setup.py": b'raise SystemExit("nobody has judged this code")\n',
        }
        files |= self.files
        path = folder / f"{stem}.tar.gz"
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in files.items():
                entry = tarfile.TarInfo(f"{stem}/{name}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        path.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))  # tarfile's own gzip writes the time
        return path


def _record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def write_index(folder: Path) -> None:
    """Pages of a PEP 503 index under `folder`/simple, for the archives in `folder`/files."""
    projects: dict[str, list[Path]] = {}
    for path in sorted((folder / "files").iterdir()):
        projects.setdefault(canonicalize_name(path.name.rsplit("-", 4 if path.suffix == ".whl" else 1)[0]), []).append(
            path
        )
    for project, paths in projects.items():
        page = folder / "simple" / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        links = (
            f'<a href="../../files/{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">{path.name}</a>'
            for path in paths
        )
        page.write_text("<!DOCTYPE html>\n" + "\n".join(links) + "\n", encoding="utf-8")


def close(wheels: Sequence[Wheel], installed: Mapping[str, str], asked: Sequence[Requirement]) -> list[Wheel]:
    """The wheels, and one more for each requirement that nothing satisfies: of the lowest version that it allows.

    Args:
        installed: distributions of the base by canonical name, with their versions.
        asked: the lines of requirement files.
    """
    house = list(wheels)
    waiting, seen = list(asked), set[tuple[str, frozenset[str]]]()
    while waiting:
        requirement = waiting.pop()
        key = (str(requirement.specifier) + canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        found = [wheel for wheel in house if _satisfies(wheel.name, wheel.version, requirement)]
        if not found and not any(_satisfies(name, version, requirement) for name, version in installed.items()):
            found = [simple(canonicalize_name(requirement.name), _lowest(requirement))]
            house += found
        for wheel in found:
            waiting += wheel.requirements(frozenset(requirement.extras))
    return house


def simple(name: str, version: str) -> Wheel:
    """A distribution that is one module of its own name."""
    module = canonicalize_name(name).replace("-", "_").replace(".", "_")
    return Wheel(name=name, version=version, files={f"{module}/__init__.py": f'__version__ = "{version}"\n'.encode()})


def _satisfies(name: str, version: str, requirement: Requirement) -> bool:
    same = canonicalize_name(name) == canonicalize_name(requirement.name)
    return same and requirement.specifier.contains(version, prereleases=True)


def _lowest(requirement: Requirement) -> str:
    """The lowest version that the requirement names and allows; where it allows none of those, one nearby.

    Raises:
        StandInError: where none is found.
    """
    clauses = [(clause.operator, Version(clause.version.removesuffix(".*"))) for clause in requirement.specifier]
    named = sorted(version for operator, version in clauses if operator in {"==", ">=", "~="})
    above = sorted(version for _, version in clauses)
    candidates = [*map(str, named), "1.0", *(f"{version.base_version}.1" for version in above)]
    candidates += [*(f"{version.major + 1}" for version in above), "0"]
    found = next(iter(requirement.specifier.filter(candidates, prereleases=True)), None)
    if found is None:
        raise StandInError(
            Problem(f"no version is found that fits {str(requirement)!r}", hint="give it one in standins/index.yaml")
        )
    return found
