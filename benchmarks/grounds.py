"""What the changes of an image are built on: a stand-in base that also has what other pins name."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.all_changes import LATER_TAGS
from benchmarks.changes import OWN
from benchmarks.every_key import OF_THE_FIRST
from benchmarks.timing import ROOT
from builder import buildkit, facts, manifest, standin, stock
from builder.upstreams import PLACE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import ExitStack

    from builder.engine import Engine
    from builder.manifest import Manifest
    from builder.standin import StandIn

GITHUB = f"{PLACE}/git/github.com"
HELPERS = """\
#include <Python.h>
static PyObject *samples(PyObject *, PyObject *) { return PyLong_FromLong(0); }
static PyMethodDef methods[] = {{"samples", samples, METH_VARARGS, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "helpers_cpp", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_helpers_cpp() { return PyModule_Create(&module); }
"""
LATER_PATCH = """\
--- a/megatron/legacy/__init__.py
+++ b/megatron/legacy/__init__.py
@@ -0,0 +1 @@
+# Another word.
"""
# What other pins name: wheels in the index, a prebuilt one of the same content, an address with an ending.
MORE = r"""
for wheel in {place}/later/*.whl; do
    file=${{wheel##*/}}
    cp "$wheel" {place}/index/files/
    sum=$(sha256sum "$wheel")
    echo "<a href=\"../../files/$file#sha256=${{sum%% *}}\">$file</a>" >> {place}/index/simple/${{file%%-*}}/index.html
done
for wheel in $(find {place}/prebuilt -name '*.whl'); do
    cp "$wheel" {place}/later/
    {python} -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "a").comment = b"later"' {place}/later/${{wheel##*/}}
done
ln -s vime {github}/vllm-project/vime.git
if [ -d {github}/vllm-project/vllm ]; then git -C {github}/vllm-project/vllm tag {vllm} next; fi
engine={github}/ROCm/TransformerEngine.git
if [ -d $engine ]; then git -C $engine tag {transformer_engine} next; fi
"""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the changes of an image are built on.

    Attributes:
        base: a stand-in base that also has what later pins name.
        other: the same, and another image.
        commits: of the sources that it fetches.
        later: for each, a commit with the same files.
        wheel: another value of the prebuilt wheel's build argument.
        arguments: of every build.
    """

    base: str
    other: str
    commits: Mapping[str, str]
    later: Mapping[str, str]
    wheel: str
    arguments: Mapping[str, str]


def lighter(engine: Engine, written: Manifest) -> StandIn:
    """The rehearsal's base, with a Megatron that compiles in no time (none is measured), and with what changes name."""
    with tempfile.TemporaryDirectory() as scratch:
        standins = Path(scratch) / "standins"
        shutil.copytree(standin.STANDINS, standins)
        sources = standins / "sources"
        (sources / "Megatron-LM/megatron/core/datasets/helpers.cpp").write_text(HELPERS, "utf-8")
        (sources / "vime/docker/amd_patch/latest/later.patch").write_text(LATER_PATCH, "utf-8")
        shutil.copy(sources / "vllm/requirements/rocm.txt", sources / "vllm/requirements/later.txt")
        apex = standins / "modules/apex/apex/later.py"
        apex.parent.mkdir(parents=True)
        apex.write_text("", "utf-8")
        strict = 'os.environ.get("NVTE_FUSED_ATTN", "1") != "0"'
        _replace(sources / "TransformerEngine/setup.py", strict, 'int(os.environ.get("NVTE_FUSED_ATTN", "1"))')
        key = "  opencv-python-headless:\n"
        _replace(standins / "index.yaml", key, f"{key}    4.11.0.87: {{module: cv2, requires: [numpy>=1.21]}}\n")
        ingredients = standin.Ingredients(cache=ROOT / ".cache", standins=standins)
        return standin.make(engine, written, facts.of(written, ROOT), ingredients, lambda _: None)


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    if old not in text:
        raise SystemExit(f"{path.name} no longer has {old!r}")
    path.write_text(text.replace(old, new, 1), "utf-8")


def later_tools(copy: Path) -> list[Path]:
    """The wheels of the build tool and the installer that changes name; from this machine's index, by their hashes."""
    with tempfile.TemporaryDirectory() as scratch:
        changed = Path(scratch) / "project"
        shutil.copytree(copy, changed)
        for change in OF_THE_FIRST:
            if {"build_tools.*.version", "installer.*.version"} & set(change.keys):
                change.apply(changed)
        found = []
        for project in (copy, changed):
            written = manifest.load(project / OWN)
            found.append(stock.tools(written, facts.of(written, ROOT), ROOT / ".cache"))
    had = {path.name for path in found[0]}
    return [path for path in found[1] if path.name not in had]


def ground(engine: Engine, written: Manifest, tools: Sequence[Path], stack: ExitStack) -> Ground:
    """A ground on which no earlier run has built; its images go with the stack."""
    stand_in = lighter(engine, written)
    stack.callback(engine.remove_image, stand_in.reference)
    python = facts.of(written, ROOT).python.executable
    script = MORE.format(place=PLACE, github=GITHUB, python=python, **LATER_TAGS)
    names = []
    with tempfile.TemporaryDirectory() as context:
        (Path(context) / "later").mkdir()
        for path in tools:
            shutil.copy(path, Path(context) / "later")
        for word in ("base", "other"):
            mark = f"echo {word} {secrets.token_hex(8)} > {PLACE}/which"
            text = f"FROM {stand_in.reference}\nCOPY later {PLACE}/later\nRUN <<'MORE'\nset -eu{script}{mark}\nMORE\n"
            built = buildkit.build(
                engine, text, arguments={}, watch=lambda _: None, network="none", context=Path(context)
            )
            names.append(f"vime-images/benchmark:bumps-{written.name}-{word}")
            engine.tag(built.image_id, names[-1])
            stack.callback(engine.remove_image, names[-1])
    commits = {source.name: stand_in.arguments[source.commit_argument] for source in written.fetched}
    later, wheel = _later(engine, names[0], written)
    rest = {name: value for name, value in stand_in.arguments.items() if not name.endswith("_COMMIT")}
    return Ground(base=names[0], other=names[1], commits=commits, later=later, wheel=wheel, arguments=rest)


def _later(engine: Engine, base: str, written: Manifest) -> tuple[dict[str, str], str]:
    """A later commit of each source, with the same files; the later prebuilt wheel, as its argument has it."""
    places = {source.name: source.repository.removeprefix("https://") for source in written.fetched}
    script = "\n".join(f"git -C {PLACE}/git/{place} rev-parse refs/heads/next" for place in places.values())
    files = " ".join(f"{PLACE}/later/{name}-*.whl" for name in written.prebuilt)
    script += f"\nsha256sum {files}" if files else ""
    with engine.container(base, ["bash", "-euc", script]) as container:
        code, output = container.wait(), container.output()
    if code:
        raise SystemExit(output)
    *commits, last = [*output.splitlines(), *([] if files else [""])]
    digest, _, file = last.partition("  ")
    return dict(zip(places, commits, strict=True)), f"file://{file}#sha256={digest}"
