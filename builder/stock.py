"""What stands in for packages: those of the base, of its index, and prebuilt ones; and the real build tools."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder import wheelhouse
from builder.rootfs import read, run
from builder.wheelhouse import Wheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from builder.facts import Facts
    from builder.manifest import Manifest

SHIPPED_REQUIREMENTS = "requirements/rocm.txt"  # of the one source that a base is known to ship
# PyJWT as a system package leaves it: a copy that pip cannot uninstall.
WITHOUT_RECORD = {"name": "PyJWT", "version": "2.7.0", "module": "jwt"}


def write_unrecorded(site: Path) -> None:
    """The copy that pip cannot uninstall, in `site`."""
    old = WITHOUT_RECORD
    info = site / f"{old['name']}-{old['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {old['name']}\nVersion: {old['version']}\n")
    (info / "top_level.txt").write_text(f"{old['module']}\n")
    module = site / old["module"]
    module.mkdir()
    (module / "__init__.py").write_text(f'__version__ = "{old["version"]}"\n')


def base_distributions(facts: Facts, standins: Path) -> Iterator[Wheel]:
    described = read(standins / "distributions.yaml")
    versions: dict[str, str] = {canonicalize_name(name): version for name, version in facts.distributions.items()}
    for name, version in facts.distributions.items():
        yield wheel(canonicalize_name(name), version, described.get(name, {}), standins, facts, versions)


def index(manifest: Manifest, facts: Facts, standins: Path) -> list[Wheel]:
    described, asked = read(standins / "index.yaml"), [*_asked(manifest, standins)]
    exact = [(need.name, str(need.specifier)) for need in asked if str(need.specifier).startswith("==")]
    pinned = {canonicalize_name(name): specifier.removeprefix("==") for name, specifier in exact} | _pins(manifest)
    wheels = [
        wheel(name, pinned[name] if version == "pinned" else version, entry or {}, standins, facts, {})
        for name, versions in described["wheels"].items()
        for version, entry in versions.items()
        if version != "pinned" or name in pinned
    ]
    installed: dict[str, str] = {canonicalize_name(name): version for name, version in facts.distributions.items()}
    installed |= {canonicalize_name(name): tool.version for name, tool in manifest.build_tools.items()}
    closed = wheelhouse.close(wheels, installed, asked)
    there = {(one.name, one.version) for one in closed}
    for name, version in manifest.locked.items():
        if (name, version) not in there:  # it has what is described of another version
            entries = [entry for entry in described["wheels"].get(name, {}).values() if entry]
            closed.append(wheel(name, version, entries[-1] if entries else {}, standins, facts, {}))
    closed = wheelhouse.close(closed, installed, asked)
    traps = [
        wheel(name, version, entry or {}, standins, facts, {})
        for name, versions in described["traps"].items()
        for version, entry in versions.items()
    ]
    return [*closed, *traps]


def _asked(manifest: Manifest, standins: Path) -> Iterator[Requirement]:
    """What the requirement sets of the sources ask for, and what the base's own ones have asked for."""
    yield from (Requirement(f"{name}=={override.version}") for name, override in manifest.overrides.items())
    for source in manifest.sources.values():
        tree = standins / "sources" / Path(source.checkout).name
        if source.recipe == "shipped":
            yield from _requirements(tree / SHIPPED_REQUIREMENTS)
        if source.requirements:
            if source.requirements.file:
                yield from _requirements(tree / source.requirements.file)
            yield from (Requirement(f"{name}{added.version}") for name, added in source.requirements.add.items())


def _pins(manifest: Manifest) -> dict[str, str]:
    """The versions that a manifest gives to wheels of the index."""
    found = {name: constraint.version.removeprefix("==") for name, constraint in manifest.constraints.items()}
    found |= {name: override.version for name, override in manifest.overrides.items()}
    for source in manifest.sources.values():
        if source.requirements:
            found |= {name: added.version.removeprefix("==") for name, added in source.requirements.add.items()}
    return found


def _requirements(path: Path) -> Iterator[Requirement]:
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r "):
            yield from _requirements(path.parent / text.removeprefix("-r ").strip())
        elif text:
            yield Requirement(text)


def wheel(  # noqa: PLR0913, PLR0917 (one line of data with its surroundings)
    name: str, version: str, entry: Mapping[str, Any], standins: Path, facts: Facts, versions: Mapping[str, str]
) -> Wheel:
    module = entry.get("module", name.replace("-", "_"))
    contents = {f"{module}/__init__.py": f'__version__ = "{version}"\n'.encode()} if module else {}
    rocm = Version(facts.rocm or facts.distributions.get("rocm", "0")).base_version
    own = standins / "modules" / name
    words = {"VERSION": version, "ROCM": rocm, "TARGETS": " ".join(facts.device_code or ())}
    for path in files(own):
        content = path.read_bytes()
        for word, text in words.items():
            content = content.replace(f"@{word}@".encode(), text.encode())
        contents[str(path.relative_to(own))] = content
    return Wheel(
        name=name,
        version=version,
        files=contents,
        requires=[requirement.format_map(versions) for requirement in entry.get("requires", [])],
        extras=entry.get("extras", {}),
        as_source=entry.get("sdist", False),
    )


def prebuilt(manifest: Manifest, facts: Facts, standins: Path) -> dict[str, Wheel]:
    """A wheel for each prebuilt one, for every Python."""
    described = read(standins / "distributions.yaml")
    return {
        name: wheel(canonicalize_name(name), each.version, described.get(name, {}), standins, facts, {})
        for name, each in manifest.prebuilt.items()
    }


def tool_lines(manifest: Manifest) -> list[str]:
    tools = [*manifest.build_tools.items(), *manifest.installer.items()]
    return [f"{name}=={tool.version} --hash=sha256:{tool.sha256}\n" for name, tool in tools]


def tools(manifest: Manifest, facts: Facts, cache: Path) -> list[Path]:
    """The real build tools and installer, so that their hashes hold; downloaded by this machine's pip, once."""
    lines = tool_lines(manifest)
    folder = cache / "build-tools" / hashlib.sha256("".join(lines).encode()).hexdigest()[:12]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            listing = Path(scratch) / "list.txt"
            listing.write_text("".join(lines), encoding="utf-8")
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
            command += [
                "--only-binary=:all:",
                f"--python-version={facts.python.version}",
                "--platform=manylinux2014_x86_64",
            ]
            wheels = Path(scratch) / "wheels"
            run([*command, f"--dest={wheels}", f"--requirement={listing}"], "the build tools cannot be downloaded")
            try:
                wheels.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another run has made it meanwhile
                    raise
    return sorted(folder.iterdir())


def files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
