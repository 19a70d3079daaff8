"""What isolation costs: 60 checks in one container, beside the bare imports and beside a container for each check."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from builder import facts, manifest, render, verify
from builder.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
CHECKS, ROUNDS, ALLOWED_S = 60, 5, 0.5
LISTING = """
import json, pathlib, pkgutil, sys, importlib
names = []
for package in sys.argv[1:]:
    found = importlib.import_module(package)
    names += [package, *(each.name for each in pkgutil.walk_packages(found.__path__, package + "."))]
print(json.dumps(names))
"""


def seconds(engine: Engine, image: str, command: Sequence[str], files: dict[str, bytes]) -> tuple[float, str]:
    """The time from asking for a container to its end, and what it wrote."""
    started = time.monotonic()
    with engine.container(image, command, files=files, environment={"HOME": "/tmp"}) as container:  # noqa: S108
        code = container.wait()
        took = time.monotonic() - started
        output = container.output()
    if code:
        raise SystemExit(output)
    return took, output


def listing(python: str, modules: Sequence[str]) -> bytes:
    checks = [{"name": name, "hint": "", "kind": "import", "module": name, "under": None} for name in modules]
    return json.dumps({"schema": 1, "python": python, "checks": checks}).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag", nargs="?", default="vime:rocm7.14-gfx942-rehearsal")
    tag = parser.parse_args().tag
    engine = Engine(owner="vime-images-bench")
    name = engine.labels(tag)[f"{render.LABEL}.image"]
    described = manifest.load(ROOT / "images" / f"{name}.yaml")
    python = facts.of(described, ROOT).python.executable
    packages = dict.fromkeys(package for source in described.sources.values() for package in source.packages)
    _, output = seconds(engine, tag, [python, "-c", LISTING, *packages], {})
    waived = ("megatron_bridge", "fused_kernels")
    modules = [each for each in json.loads(output.splitlines()[-1]) if not any(name in each for name in waived)]
    modules = [
        "torch",
        *modules,
        "json",
        "csv",
        "email",
        "sqlite3",
        "decimal",
        "asyncio",
        "xml.dom",
        "unittest",
        "wave",
    ]
    modules = modules[:CHECKS]
    programs = {f"{verify.FOLDER}/{name}": (render.PROGRAMS / name).read_bytes() for name in verify.PROGRAMS}
    check = [python, f"{verify.FOLDER}/check.py", "run", f"{verify.FOLDER}/checks.json"]

    def checked(chosen: Sequence[str]) -> float:
        files = programs | {f"{verify.FOLDER}/checks.json": listing(python, chosen)}
        return seconds(engine, tag, check, files)[0]

    bare = ["-c", f"import {', '.join(modules)}"]
    once = [(seconds(engine, tag, [python, *bare], programs)[0], checked(modules)) for _ in range(ROUNDS)]
    plain, together = (median(column) for column in zip(*once, strict=True))
    apart = sum(checked([module]) for module in modules)
    print(f"start, and {len(modules)} imports in one process: {plain:.2f} s")
    print(
        f"{len(modules)} checks in one container: {together:.2f} s, {together - plain:+.2f} s (allowed {ALLOWED_S} s)"
    )
    print(f"a container for each check: {apart:.2f} s, {apart / together:.1f} times as long")
    engine.close()


if __name__ == "__main__":
    main()
