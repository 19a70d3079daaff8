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
from typing import TYPE_CHECKING, Literal

from builder import buildkit, rootfs, stock, upstreams, wheelhouse
from builder.entries import wheel_argument
from builder.errors import Problem, StandInError
from builder.rootfs import read, run
from builder.told import without_logins
from builder.trace import Event
from builder.upstreams import PLACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from builder.engine import Engine
    from builder.entries import Source
    from builder.facts import Facts
    from builder.manifest import Manifest

STANDINS = Path(__file__).parent.parent / "standins"
LABEL = "vime-images.standin"
AUTHORITY = "/etc/standin-certificates.pem"  # how this machine checks the index
SYSTEM = Path("/usr/lib/python3/dist-packages")  # where the system's packages put what Python imports


@dataclass(frozen=True, slots=True)
class StandIn:
    """A base for rehearsals, and the build arguments that name what it brings."""

    reference: str
    arguments: Mapping[str, str]


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
            arguments = {manifest.sources[name].commit_argument: commit for name, commit in commits.items()}
            arguments |= _write_packages(manifest, facts, context, ingredients)
            dockerfile = _dockerfile(root, manifest, facts, arguments, standins)
            built = buildkit.build(engine, dockerfile, arguments={}, watch=watch, context=context, network="none")
        engine.tag(built.image_id, reference)
    labels = engine.labels(reference)
    return StandIn(reference, {name: labels[f"{LABEL}.{name}"] for name in manifest.pins if name != "BASE_IMAGE"})


def _pip_configuration(index: str) -> dict[str, str]:
    """Files of /etc that say where the base's pip resolves from; of this machine's, only how an index is reached."""
    if index == "stand-in":
        return {"pip.conf": f"[global]\nindex-url = file://{PLACE}/index/simple\n"}
    listed = run([sys.executable, "-m", "pip", "config", "list"], "pip shows no configuration")
    found: dict[str, str] = {}
    for line in sorted(listed.splitlines(), reverse=True):  # the environment's, which win, come last
        name, _, text = line.partition("=")
        found[name.rpartition(".")[2]] = ast.literal_eval(text)
    if any(without_logins(found.get(name, "")) != found.get(name, "") for name in ("index-url", "proxy")):
        message = "this machine's pip has a password in the address of its index or proxy"
        hint = "it would stand in a layer: rehearse on the stand-in index, or name an address that needs none"
        raise StandInError(Problem(message, hint=hint))
    lines = [f"{name} = {found[name]}\n" for name in ("index-url", "proxy", "timeout", "trusted-host") if name in found]
    if "cert" not in found:
        return {"pip.conf": "".join(["[global]\n", *lines])}
    authority = Path(found["cert"]).read_text(encoding="utf-8")
    return {"pip.conf": "".join(["[global]\n", *lines, f"cert = {AUTHORITY}\n"]), Path(AUTHORITY).name: authority}


def _digest(manifest: Manifest, facts: Facts, chosen: Sequence[str], standins: Path) -> str:
    # Of the manifest, only what the base is made of: a change of a check must not make another base.
    sources = {name: [source.recipe, source.repository, source.tag] for name, source in manifest.sources.items()}
    others = [manifest.gpu_targets, list(manifest.executables), [wheel.file for wheel in manifest.prebuilt.values()]]
    served = sorted((wheel.name, wheel.version) for wheel in stock.index(manifest, facts, standins))
    parts = [*chosen, facts.model_dump_json(), json.dumps(sources), json.dumps(served)]
    parts += [json.dumps(others), *stock.tool_lines(manifest)]
    digest = hashlib.sha256("\n".join(parts).encode())
    modules = (__file__, stock.__file__, upstreams.__file__, wheelhouse.__file__)
    for path in [*stock.files(standins), *map(Path, modules)]:
        digest.update(f"{path.relative_to(standins) if path.is_relative_to(standins) else path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _write_packages(manifest: Manifest, facts: Facts, context: Path, ingredients: Ingredients) -> dict[str, str]:
    """Everything that pip installs; the prebuilt wheels by their build arguments."""
    standins = ingredients.standins
    place = context / "standin"
    for folder in (place / "installed", place / "index" / "files", place / "prebuilt"):
        folder.mkdir(parents=True, exist_ok=True)
    shipped = {source.distribution for source in manifest.installed_by("shipped")}
    for wheel in stock.base_distributions(facts, standins):
        if wheel.name not in shipped:
            wheel.write(place / "installed")
    for wheel in stock.index(manifest, facts, standins):
        wheel.write(place / "index" / "files")
    for path in stock.tools(manifest, facts, ingredients.cache):
        shutil.copy(path, place / "index" / "files")
    wheelhouse.write_index(place / "index")
    stock.write_unrecorded(place / "unrecorded")
    for source in manifest.installed_by("shipped"):
        tree = Path(source.checkout).name
        shutil.copytree(standins / "sources" / tree, place / "shipped" / source.name)
    arguments = {}
    for name, wheel in stock.prebuilt(manifest, facts, standins).items():
        path = wheel.write(place / "prebuilt")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        arguments[wheel_argument(name)] = f"file://{PLACE}/prebuilt/{path.name}#sha256={digest}"
    return arguments


def _dockerfile(root: str, manifest: Manifest, facts: Facts, arguments: Mapping[str, str], standins: Path) -> str:
    python, site = facts.python.executable, Path(facts.python.site_packages)
    of_the_system = site.name == "dist-packages"
    lines = [
        f"FROM {root}",
        "COPY etc /etc",
        f"COPY standin {PLACE}",
        'SHELL ["/bin/bash", "-euo", "pipefail", "-c"]',
        "RUN <<'PYTHON'",
        *(_python_of_the_system(facts) if of_the_system else _python_in_an_environment(facts)),
        f"{python} -m pip install --quiet --no-index --no-deps --no-cache-dir {PLACE}/installed/*.whl",
        *_links(facts, standins),
        f'find {site}/ -name "*.so*.c" | while read -r source; do gcc -shared -o "${{source%.c}}" "$source"; done',
        f"chmod +x {site}/torch/bin/*",
        *(f"chmod -x {path}" for path in manifest.executables),
        "PYTHON",
        *(f"ENV {name}={json.dumps(value)}" for name, value in facts.env.items()),
        f"ENV PATH={Path(python).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "RUN <<'REST'",
        *(line for source in manifest.installed_by("shipped") for line in _shipped(source, manifest, python)),
        f"cp -R {PLACE}/unrecorded/. {SYSTEM if of_the_system else site}/",
        f"rm -rf {PLACE}/installed {PLACE}/shipped {PLACE}/unrecorded",
        "REST",
        *([f"ENTRYPOINT {json.dumps(facts.entrypoint)}"] if facts.entrypoint else []),
        *(f"LABEL {LABEL}.{name}={json.dumps(value)}" for name, value in arguments.items()),
    ]
    return "\n".join(lines) + "\n"


def _python_in_an_environment(facts: Facts) -> Iterator[str]:
    venv, library = Path(facts.python.executable).parent.parent, Path(facts.python.site_packages).parent
    yield f"python3 -m venv {venv}"
    yield f"real=$(echo {venv}/lib/python3.*)"
    yield f'if [ ! -e {library} ]; then ln -s "$(basename "$real")" {library}; fi'


def _python_of_the_system(facts: Facts) -> Iterator[str]:
    """Debian's own, by the name of the base's, with a pip and without what forbids to use it."""
    python, library = facts.python.executable, Path(facts.python.site_packages).parent
    yield f'ln -s "$(readlink -f /usr/bin/python3)" {python}'
    yield f'ln -s "$(basename "$(echo /usr/lib/python3.*)")" {library}'
    yield "rm /usr/lib/python3.*/EXTERNALLY-MANAGED"
    yield "pip=$(echo /usr/share/python-wheels/pip-*.whl)"
    yield f'{python} "$pip/pip" install --quiet --no-index --no-deps --no-cache-dir "$pip"'


def _links(facts: Facts, standins: Path) -> Iterator[str]:
    links = read(standins / "links.yaml")
    places = {Path(facts.rocm_root or "/opt/rocm", place): target for place, target in links["rocm"].items()}
    if "rocm-sdk-core" in facts.distributions:
        places |= {Path(facts.python.site_packages, place): to for place, to in links["rocm-sdk-core"].items()}
    for place, target in places.items():
        yield f"mkdir -p {place.parent}\nln -s {target} {place}"


def _shipped(source: Source, manifest: Manifest, python: str) -> Iterator[str]:
    """Build a source as whoever made the base has, and install it with all that it asks for."""
    pip = f"pip --isolated install --quiet --no-cache-dir --index-url=file://{PLACE}/index/simple"
    yield f"{python} -m venv --system-site-packages {PLACE}/build"
    tools = "ninja packaging setuptools setuptools-scm wheel"
    yield f"{PLACE}/build/bin/python -m {pip} --no-deps {tools}"
    yield f"cd {PLACE}/shipped/{source.name}"
    yield f"export PATH={PLACE}/build/bin:$PATH SETUPTOOLS_SCM_PRETEND_VERSION={source.public_version}"
    yield f"PYTORCH_ROCM_ARCH='{';'.join(manifest.gpu_targets)}' python setup.py --quiet bdist_wheel"
    yield f"{python} -m {pip} dist/*.whl"
    yield f"cd /\nrm -r {PLACE}/build"
