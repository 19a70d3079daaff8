"""What an image weighs over its base, step by step: measured of the rehearsal, estimated of the real base."""

from __future__ import annotations

import compileall
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, run
from builder import drift, layers, resolve
from builder.engine import Engine
from builder.project import load
from builder.render import render
from builder.units import size

if TYPE_CHECKING:
    from builder.facts import Facts
    from builder.manifest import Manifest

IMAGE, UNKNOWN = "rocm7.14", "unknown"
TAG = f"vime:{IMAGE}-gfx942-rehearsal"
NOTES = (
    """The steps that fetch and compile weigh in a rehearsal what their stand-ins weigh: of the real ones nothing is
known from that, and no release says what vLLM's libraries weigh for these GPU targets.""",
    """What a requirement set weighs is measured: its distributions are resolved from the index over the facts of the
base, as `preflight` does it, unpacked, and compiled by this machine's Python.""",
)
SAME = "the same bytes as in a rehearsal"
STANDIN = "of stand-ins: the real one is known when it has been built"


def main() -> None:
    engine = Engine(owner="vime-images-bench")
    image_id = engine.image_id(TAG)
    if image_id is None:
        sys.exit(f"the engine has no {TAG}: make rehearse ROCM=7.14")
    manifest, facts = load(IMAGE)
    text = render(manifest, facts)
    read = layers.read(engine, image_id, text)
    engine.close()
    ours = [layer for layer in read if layer.is_ours]
    base = round((facts.size_gb or 0) * 1e9)
    real = _requirement_sets(manifest, facts)
    runs = set(drift.names(text).values()) - {"BUILD_TOOLS"}  # the tools are the real ones
    below = sum(each.bytes for each in read if not each.is_ours)
    rows = [["the base", size(below), size(base) if base else UNKNOWN, "published; `size_gb` of its facts"]]
    known = base
    for layer in ours:
        found, why = real.get(layer.step, (None, STANDIN) if layer.step in runs else (layer.bytes, SAME))
        rows.append([layer.step, size(layer.bytes), UNKNOWN if found is None else size(found), why])
        known += found or 0
    rows.append(["all that is known", size(sum(layer.bytes for layer in read)), size(known), ""])
    waste = layers.waste(read)
    again = sum(each.bytes for each in waste if each.what == layers.REPLACED)
    left = sum(each.bytes for each in waste) - again
    share = round(100 * again / sum(layer.bytes for layer in ours), 2)
    tell(
        title="The size of an image",
        how=f"The layers of the rehearsal of {IMAGE}, as the engine exports them, and an estimate for its real base.",
        columns=["step", "rehearsal", "real base", "why"],
        rows=rows,
        targets=[
            Target(what="left in a layer that no run needs", value=left, allowed=0, unit="B"),
            Target(what=layers.REPLACED, value=share, allowed=100 * layers.AGAIN, unit="% of our layers"),
        ],
        notes=NOTES,
    )


def _requirement_sets(manifest: Manifest, facts: Facts) -> dict[str, tuple[int | None, str]]:
    """The bytes that each requirement set installs over the real base, by its step, and of how many distributions."""
    found: dict[str, tuple[int | None, str]] = {}
    plans: list[resolve.Plan] = []
    for source in manifest.fetched:
        if source.requirements is None:
            continue
        tree = ROOT / "standins" / "sources" / source.name if source.requirements.file else None
        plan = resolve.plan(manifest, facts, source, tree, cache=ROOT / ".cache" / "uv", so_far=plans)
        plans.append(plan)
        step = source.step("REQUIREMENTS")
        if not plan.passed:
            found[step] = None, f"no plan: {plan.no_plan or plan.refusals[0]}".partition("\n")[0]
            continue
        pins = [f"{one.name}=={one.version}" for one in plan.planned]
        found[step] = _weight(pins, facts.python.version), f"{len(pins)} distributions, with their bytecode"
    return found


def _weight(pins: list[str], python: str) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += [f"--target={scratch}", f"--python-version={python}", "--python-platform=x86_64-manylinux_2_39"]
        run([*command, *pins], environment=os.environ | {"UV_CACHE_DIR": str(ROOT / ".cache" / "uv")})
        compileall.compile_dir(scratch, quiet=2, workers=os.cpu_count() or 1, maxlevels=50)
        return sum(path.lstat().st_size for path in Path(scratch).rglob("*") if not path.is_dir())


if __name__ == "__main__":
    main()
