"""The stand-in base: a small image that has what the recipes expect of the real one, in names, versions and places."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder import buildkit, rootfs, upstreams, wheelhouse
from builder.rootfs import read, run
from builder.trace import Event
from builder.upstreams import PLACE
from builder.wheelhouse import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest

STANDINS = Path(__file__).parent.parent / "standins"
LABEL = "vime-images.standin"
AUTHORITY = "/etc/standin-certificates.pem"  # how this machine checks the index
# PyJWT as a system package leaves it: a copy that pip cannot uninstall.
WITHOUT_RECORD = {"name": "PyJWT", "version": "2.7.0", "module": "jwt"}


@dataclass(frozen=True, slots=True)
class StandIn:
    """A base for rehearsals, and the commits of the sources that it brings."""

    reference: str
    commits: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """What a stand-in base is made from.

    Attributes:
        cache: a folder for downloads, kept.
        root_image: an image to stand on, in place of a root file system of our own.
        index: where the base's pip resolves from: its own folder of stand-ins, or what this machine's pip uses.
        standins: the folder that describes the stand-ins.
    """

    cache: Path
    root_image: str | None = None
    index: Literal["stand-in", "real"] = "stand-in"
    standins: Path = STANDINS


def make(
    engine: Engine, manifest: Manifest, facts: Facts, ingredients: Ingredients, watch: Callable[[Event], None]
) -> StandIn:
    """The stand-in base of a manifest; made once, then found by the digest of all that goes into it.

    Raises:
        StandInError: where this machine cannot make one.
    """
    standins = ingredients.standins
    root = ingredients.root_image or rootfs.reference(standins)
    pip = _pip_configuration(ingredients.index)
    digest = _digest(manifest, facts, [root, ingredients.index, *pip.values()], standins)
    reference = f"vime-images/standin:{manifest.base.facts}-{digest}"
    if engine.image_id(reference) is None:
        if ingredients.root_image is None:
            rootfs.make(engine, standins, watch)
        watch(Event("stand-in", f"making {reference}"))
        with tempfile.TemporaryDirectory() as scratch:
            context = Path(scratch)
            for name, text in pip.items():
                (context / "etc").mkdir(exist_ok=True)
                (context / "etc" / name).write_text(text, encoding="utf-8")
            commits = upstreams.write(manifest, context, standins)
            _write_packages(manifest, facts, context, ingredients)
            dockerfile = _dockerfile(root, facts, commits, standins)
            built = buildkit.build(engine, dockerfile, arguments={}, watch=watch, context=context, network="none")
        engine.tag(built.image_id, reference)
    labels = engine.labels(reference)
    return StandIn(reference, {name: labels[f"{LABEL}.{name}"] for name in manifest.sources})


def _pip_configuration(index: str) -> dict[str, str]:
    """Files of /etc that say where the base's pip resolves from; of this machine's, only how an index is reached."""
    if index == "stand-in":
        return {"pip.conf": f"[global]\nindex-url = file://{PLACE}/index/simple\n"}
    listed = run([sys.executable, "-m", "pip", "config", "list"], "pip shows no configuration")
    found: dict[str, str] = {}
    for line in sorted(listed.splitlines(), reverse=True):  # the environment's, which win, come last
        name, _, text = line.partition("=")
        found[name.rpartition(".")[2]] = ast.literal_eval(text)
    lines = [f"{name} = {found[name]}\n" for name in ("index-url", "proxy", "timeout", "trusted-host") if name in found]
    if "cert" not in found:
        return {"pip.conf": "".join(["[global]\n", *lines])}
    authority = Path(found["cert"]).read_text(encoding="utf-8")
    return {"pip.conf": "".join(["[global]\n", *lines, f"cert = {AUTHORITY}\n"]), Path(AUTHORITY).name: authority}


def _digest(manifest: Manifest, facts: Facts, chosen: Sequence[str], standins: Path) -> str:
    # Of the manifest, only what the base is made of: a change of a check must not make another base.
    sources = {name: [source.repository, source.tag] for name, source in manifest.sources.items()}
    parts = [*chosen, facts.model_dump_json(), json.dumps(sources), json.dumps(_pinned(manifest))]
    parts += _tool_lines(manifest)
    digest = hashlib.sha256("\n".join(parts).encode())
    for path in [*_files(standins), *(Path(module) for module in (__file__, upstreams.__file__, wheelhouse.__file__))]:
        digest.update(f"{path.relative_to(standins) if path.is_relative_to(standins) else path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _write_packages(manifest: Manifest, facts: Facts, context: Path, ingredients: Ingredients) -> None:
    standins = ingredients.standins
    place = context / "standin"
    for folder in (place / "installed", place / "index" / "files"):
        folder.mkdir(parents=True, exist_ok=True)
    for wheel in _base_distributions(facts, standins):
        wheel.write(place / "installed")
    for wheel in _index(manifest, facts, standins):
        wheel.write(place / "index" / "files")
    for path in tools(manifest, facts, ingredients.cache):
        shutil.copy(path, place / "index" / "files")
    wheelhouse.write_index(place / "index")
    write_unrecorded(place / "unrecorded")


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


def _base_distributions(facts: Facts, standins: Path) -> Iterator[Wheel]:
    described = read(standins / "distributions.yaml")
    versions: dict[str, str] = {canonicalize_name(name): version for name, version in facts.distributions.items()}
    for name, version in facts.distributions.items():
        yield _wheel(canonicalize_name(name), version, described.get(name, {}), standins, facts, versions)


def _index(manifest: Manifest, facts: Facts, standins: Path) -> list[Wheel]:
    described, pinned = read(standins / "index.yaml"), _pinned(manifest)
    wheels = [
        _wheel(name, pinned[name] if version == "pinned" else version, entry or {}, standins, facts, {})
        for name, versions in described["wheels"].items()
        for version, entry in versions.items()
    ]
    asked = [Requirement(f"{name}=={override.version}") for name, override in manifest.overrides.items()]
    for source in manifest.sources.values():
        if source.requirements:
            tree = standins / "sources" / Path(source.checkout).name
            asked += _requirements(tree / source.requirements.file)
            asked += [Requirement(f"{name}{added.version}") for name, added in source.requirements.add.items()]
    installed: dict[str, str] = {canonicalize_name(name): version for name, version in facts.distributions.items()}
    installed |= {canonicalize_name(name): tool.version for name, tool in manifest.build_tools.items()}
    closed = wheelhouse.close(wheels, installed, asked)
    traps = [
        _wheel(name, version, entry or {}, standins, facts, {})
        for name, versions in described["traps"].items()
        for version, entry in versions.items()
    ]
    return [*closed, *traps]


def _pinned(manifest: Manifest) -> dict[str, str]:
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


def _wheel(  # noqa: PLR0913, PLR0917 (one line of data with its surroundings)
    name: str, version: str, entry: Mapping[str, Any], standins: Path, facts: Facts, versions: Mapping[str, str]
) -> Wheel:
    module = entry.get("module", name.replace("-", "_"))
    files = {f"{module}/__init__.py": f'__version__ = "{version}"\n'.encode()} if module else {}
    rocm = Version(facts.distributions.get("rocm", "0")).base_version
    own = standins / "modules" / name
    words = {"VERSION": version, "ROCM": rocm, "TARGETS": " ".join(facts.device_code or ())}
    for path in _files(own):
        content = path.read_bytes()
        for word, text in words.items():
            content = content.replace(f"@{word}@".encode(), text.encode())
        files[str(path.relative_to(own))] = content
    return Wheel(
        name=name,
        version=version,
        files=files,
        requires=[requirement.format_map(versions) for requirement in entry.get("requires", [])],
        extras=entry.get("extras", {}),
        as_source=entry.get("sdist", False),
    )


def _tool_lines(manifest: Manifest) -> list[str]:
    tools = [*manifest.build_tools.items(), *manifest.installer.items()]
    return [f"{name}=={tool.version} --hash=sha256:{tool.sha256}\n" for name, tool in tools]


def tools(manifest: Manifest, facts: Facts, cache: Path) -> list[Path]:
    """The real build tools and installer, so that their hashes hold; downloaded by this machine's pip, once."""
    lines = _tool_lines(manifest)
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
            wheels.rename(folder)
    return sorted(folder.iterdir())


def _dockerfile(root: str, facts: Facts, commits: Mapping[str, str], standins: Path) -> str:
    python, site = Path(facts.python.executable), Path(facts.python.site_packages)
    venv = python.parent.parent
    links = read(standins / "links.yaml")
    lines = [
        f"FROM {root}",
        "COPY etc /etc",
        f"COPY standin {PLACE}",
        'SHELL ["/bin/bash", "-euo", "pipefail", "-c"]',
        "RUN <<'PYTHON'",
        f"python3 -m venv {venv}",
        f"real=$(echo {venv}/lib/python3.*)",
        f'if [ ! -e {site.parent} ]; then ln -s "$(basename "$real")" {site.parent}; fi',
        f"{python} -m pip install --quiet --no-index --no-deps --no-cache-dir {PLACE}/installed/*.whl",
        f"cp -R {PLACE}/unrecorded/. {site}/",
        *(
            f"mkdir -p {site / place.rpartition('/')[0]}\nln -s {target} {site / place}"
            for place, target in links.items()
        ),
        f'for source in {site}/_rocm_sdk_core/lib/*.c; do gcc -shared -o "${{source%.c}}" "$source"; done',
        f"chmod -x {site}/torch/bin/*",
        f"rm -r {PLACE}/installed {PLACE}/unrecorded",
        "PYTHON",
        *(f"ENV {name}={json.dumps(value)}" for name, value in facts.env.items()),
        f"ENV PATH={python.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        *(f"LABEL {LABEL}.{name}={commit}" for name, commit in commits.items()),
    ]
    return "\n".join(lines) + "\n"
