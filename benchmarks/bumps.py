"""What a bump costs: the steps that each change of an image runs again, beside those that depend on it.

    python -m benchmarks.bumps

A copy of the project is changed, rendered, and built on the rehearsal's base by a real engine that has built the
unchanged one; BuildKit's own flags say which steps were cached. The same is done with a Dockerfile of the usual shape.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

from copies import copied  # noqa: E402 (the path comes first)

from benchmarks.changes import IMAGE, LATER_TAG, OWN, Change, one_of_each  # noqa: E402
from benchmarks.telling import Target, tell  # noqa: E402
from builder import buildkit, dockerfile, facts, manifest, standin  # noqa: E402
from builder.engine import Engine  # noqa: E402
from builder.errors import BuilderError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.manifest import Manifest
    from builder.standin import StandIn

BUILDS_AT_ONCE = 3  # no time is measured
COMPILE, FIRST, PROOF = "BUILD_VLLM", "the builder", "the proof"  # two steps have no name of their own

# What each step that runs something reads, in small letters; in capitals, the steps whose work it reads. It is written
# from what the steps are for, not from a build. What compares the seal depends on all that was sealed before it; what
# asks pip or setuptools, on all that was installed; a fetch asks git, and the source that brings its patches.
READS = {
    FIRST: "base",
    "SEAL_BASE": "base sealed seal.py",
    "LINKS": "base links",
    "BUILD_TOOLS": "base build_tools seal.py SEAL_BASE",
    "GPU_TARGETS": "base target",
    "BUILD_VLLM": "vllm source.py seal.py SEAL_BASE LINKS BUILD_TOOLS GPU_TARGETS",
    "BUILD_TORCH_MEMORY_SAVER": "torch_memory_saver source.py seal.py LINKS BUILD_TOOLS GPU_TARGETS BUILD_VLLM",
    "REMOVE": "removed judge.py seal.py BUILD_TORCH_MEMORY_SAVER",
    "REQUIREMENTS_VLLM": "policy vllm_set judge.py installer.py seal.py BUILD_VLLM REMOVE",
    "FETCH_VIME": "base vime patch source.py",
    "REQUIREMENTS_VIME": "policy vime_set judge.py installer.py seal.py FETCH_VIME REQUIREMENTS_VLLM",
    "INSTALL_VIME": "seal.py FETCH_VIME REQUIREMENTS_VIME",
    "FETCH_MEGATRON": "base megatron source.py FETCH_VIME",
    "INSTALL_MEGATRON": "seal.py FETCH_MEGATRON INSTALL_VIME",
    "VERIFY": "env checks check.py checked.py kinds.py trial.py imports.py device.py seal.py INSTALL_MEGATRON",
    PROOF: "check.py VERIFY",
}
# What may compile vLLM. Its step also fetches it (source.py), so that its tree is in no layer; links are of the base.
MAY_COMPILE = {"vllm", "source.py", "build_tools", "target", "sealed", "seal.py", "base", "links"}
# What stands elsewhere in the usual shape. Another change runs the same steps in both, so it is built in one.
AT_THE_TOP = {"target", "vllm", "torch_memory_saver", "vime", "megatron", "env"}
# A file of one stage is a chain: what stands behind a step runs again with it. Where that is more than depends on the
# change, the other order would cost more.
MOMENTS = "moments, ahead of a compile that has to run anyway"
FETCHES = "a fetch takes seconds; ahead of the compiles and requirement sets, its own bump would run those"
TRADES = {"LINKS": MOMENTS, "GPU_TARGETS": MOMENTS, "FETCH_VIME": FETCHES, "FETCH_MEGATRON": FETCHES}

HELPERS = """\
#include <Python.h>
static PyObject *samples(PyObject *, PyObject *) { return PyLong_FromLong(0); }
static PyMethodDef methods[] = {{"samples", samples, METH_VARARGS, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "helpers_cpp", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_helpers_cpp() { return PyModule_Create(&module); }
"""


def dependents(part: str) -> list[str]:
    """The steps that read the part, or what such a step has made; in the order of the table."""
    found: set[str] = set()
    for step, reads in READS.items():  # a step reads nothing that is made later
        if {part, *found} & set(reads.split()):
            found.add(step)
    return [step for step in READS if step in found]


def usual(text: str) -> str:
    """The same Dockerfile in the usual shape: the same steps on the same base, arguments and variables at the top."""
    lines, parsed = text.split("\n"), dockerfile.parse(text)
    (base,) = (step.line for step in parsed if step.keyword == "FROM")
    top = [step.line - 1 for step in parsed if step.keyword in {"ARG", "ENV"} and step.line > base]
    rest = [line for number, line in enumerate(lines) if number >= base and number not in top]
    return "\n".join([*lines[:base], *(lines[number] for number in top), *rest])


def rendered(change: Change | None, copy: Path) -> str:
    """The Dockerfile of a project with that change, by the project's own command; `copy` is the unchanged one."""
    with tempfile.TemporaryDirectory() as scratch:
        changed = Path(scratch) / "project"
        shutil.copytree(copy, changed)
        if change:
            change.apply(changed)
        command = [sys.executable, "-m", "builder", "render", IMAGE]
        environment = os.environ | {"PYTHONPATH": str(changed)}
        done = subprocess.run(command, cwd=changed, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{change and change.what}: {done.stderr}")
        return (changed / f"dockerfiles/Dockerfile.{IMAGE}").read_text("utf-8")


def ran(engine: Engine, text: str, arguments: Mapping[str, str], what: str) -> list[str]:
    """The steps that run something and were not cached, by their names in the table."""
    try:
        built = buildkit.build(engine, text, arguments=arguments, watch=lambda _: None, network="none")
    except BuilderError as error:
        raise SystemExit(f"{what}: {error}") from error
    names = named(text)
    return [names[step.name] for step in built.steps if step.name in names and not step.cached]


def named(text: str) -> dict[str, str]:
    """The steps that run something, in their order: by the builder's name, that of the table."""
    runs = [step.name for step in dockerfile.parse(text) if step.keyword == "RUN"]
    names = dict(zip(runs, [FIRST, *runs[1:-1], PROOF], strict=True))
    if set(names.values()) != set(READS):
        raise SystemExit(f"steps and their table differ: {sorted(set(names.values()) ^ set(READS))}")
    return names


def bases(engine: Engine, stand_in: StandIn) -> tuple[str, str]:
    """The rehearsal's base with a later tag of vLLM, and another one; new ones, on which no earlier run has built."""
    vllm = "/opt/standin/git/github.com/vllm-project/vllm"
    found = []
    for word in ("base", "other"):
        mark = f"echo {word} {secrets.token_hex(8)} > /opt/standin/which"
        text = f"FROM {stand_in.reference}\nRUN git -C {vllm} tag {LATER_TAG} next && {mark}\n"
        built = buildkit.build(engine, text, arguments={}, watch=lambda _: None, network="none")
        found.append(f"vime-images/benchmark:bumps-{word}")
        engine.tag(built.image_id, found[-1])
    return found[0], found[1]


def later(engine: Engine, base: str, repositories: Mapping[str, str]) -> dict[str, str]:
    """A later commit of each source, with the same files."""
    places = {name: address.removeprefix("https://") for name, address in repositories.items()}
    script = "\n".join(f"git -C /opt/standin/git/{place} rev-parse refs/heads/next" for place in places.values())
    with engine.container(base, ["bash", "-euc", script]) as container:
        container.wait()
        return dict(zip(places, container.output().split(), strict=True))


def lighter(engine: Engine, written: Manifest) -> StandIn:
    """The rehearsal's base, with a Megatron that compiles in no time: none is measured."""
    with tempfile.TemporaryDirectory() as scratch:
        standins = Path(scratch) / "standins"
        shutil.copytree(standin.STANDINS, standins)
        (standins / "sources/Megatron-LM/megatron/core/datasets/helpers.cpp").write_text(HELPERS, "utf-8")
        ingredients = standin.Ingredients(cache=ROOT / ".cache", standins=standins)
        return standin.make(engine, written, facts.of(written, ROOT), ingredients, lambda _: None)


def main() -> None:
    written = manifest.load(ROOT / OWN)
    engine = Engine("benchmark")
    stand_in = lighter(engine, written)
    base, other = bases(engine, stand_in)
    commits = {source.name: stand_in.arguments[source.commit_argument] for source in written.fetched}
    repositories = {source.name: source.repository for source in written.fetched}
    try:
        with tempfile.TemporaryDirectory() as scratch:
            copy = copied(Path(scratch)).root
            pins: dict[tuple[str | int, ...], str] = {("sources", name, "commit"): commits[name] for name in commits}
            for path, content in written.rewritten(pins).items():
                (copy / path.relative_to(ROOT)).write_bytes(content)
            changes = one_of_each(commits, later(engine, base, repositories), other)
            measured = measure(changes, copy, base)
    finally:
        for reference in (base, other, stand_in.reference):
            engine.remove_image(reference)
    report(changes, measured)


def measure(changes: tuple[Change, ...], copy: Path, base: str) -> list[tuple[list[str], list[str]]]:
    """The steps that each change has run, with our Dockerfile and with the usual one."""
    shapes = {"ours": rendered(None, copy)}
    shapes["usual"] = usual(shapes["ours"])
    engine = Engine("benchmark")
    for shape, text in shapes.items():
        sys.stderr.write(f"{shape}: {len(ran(engine, text, {'BASE_IMAGE': base}, shape))} steps before any change\n")

    def both(change: Change) -> tuple[list[str], list[str]]:
        one = Engine("benchmark")  # a connection is one thread's
        text = rendered(change, copy)
        arguments = {"BASE_IMAGE": base, **dict(change.arguments)}
        ours = ran(one, text, arguments, change.what)
        theirs = ran(one, usual(text), arguments, change.what) if change.part in AT_THE_TOP else ours
        sys.stderr.write(f"{change.what}: {len(ours)} steps, in the usual shape {len(theirs)}\n")
        return ours, theirs

    with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:
        return list(pool.map(both, changes))


def report(changes: tuple[Change, ...], measured: list[tuple[list[str], list[str]]]) -> None:
    rows, missing, untraded, compiled = [], 0, 0, 0
    for change, (ours, theirs) in zip(changes, measured, strict=True):
        wanted = dependents(change.part)
        more = [step for step in ours if step not in wanted]
        why = dict.fromkeys(TRADES.get(step, "no reason") for step in more)
        missing += len(set(wanted) - set(ours))
        untraded += len(set(more) - set(TRADES))
        compiled += COMPILE in ours and change.part not in MAY_COMPILE
        compiles = [("yes" if COMPILE in steps else "no") for steps in (wanted, ours, theirs)]
        rows.append([change.what, len(wanted), len(ours), len(theirs), *compiles, ", ".join(more), "; ".join(why)])
    tell(
        title="The cost of a bump",
        how=__doc__.partition("\n\n    python -m benchmarks.bumps\n\n")[2].replace("\n", " ").strip(),
        columns=COLUMNS,
        rows=rows,
        targets=[
            Target(what="steps that depend on a change and did not run", value=missing, allowed=0, unit="steps"),
            Target(what="steps that ran without need, and for no trade", value=untraded, allowed=0, unit="steps"),
            Target(what="compiles of vLLM for a change that may not", value=compiled, allowed=0, unit="steps"),
        ],
        notes=NOTES,
    )


COLUMNS = (
    "what changes",
    "steps that depend on it",
    "steps that ran",
    "steps that ran in the usual shape",
    "vLLM's compile depends on it",
    "vLLM compiled",
    "vLLM compiled in the usual shape",
    "ran without need",
    "why",
)
NOTES = (
    "What depends on a change is said by a table in benchmarks/bumps.py, written from what each step is for.",
    "Only steps that run something count: one that puts a file in place takes a tenth of a second.",
    f"What may compile vLLM: {', '.join(sorted(MAY_COMPILE))}.",
    "source.py fetches vLLM in the step that compiles it, so that its tree is in no layer.",
    "The usual shape has the same steps on the same base, with all arguments and variables at the top.",
    "Where no argument or variable changes, the usual shape runs the same steps, and was not built again.",
)


if __name__ == "__main__":
    main()
