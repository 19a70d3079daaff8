"""What isolation costs: 60 checks in one container, beside the bare imports and beside a container for each check."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, run
from builder import facts, manifest, render, verify
from builder.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Sequence

TAG, PEER = "vime:rocm7.14-gfx942-rehearsal", "container-structure-test"
CHECKS, ROUNDS, ALLOWED_S, ALLOWED_TIMES = 60, 5, 0.5, 10
LIBRARY = ("json", "csv", "email", "sqlite3", "decimal", "asyncio", "xml.dom", "unittest", "wave")
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
    engine = Engine(owner="vime-images-bench")
    if engine.image_id(TAG) is None:
        sys.exit(f"the engine has no {TAG}: make rehearse ROCM=7.14")
    described = manifest.load(ROOT / "images" / "rocm7.14.yaml")
    python = facts.of(described, ROOT).python.executable
    modules = _modules(engine, python, [package for each in described.sources.values() for package in each.packages])
    bare = [python, "-c", f"import {', '.join(modules)}"]
    once = [(seconds(engine, TAG, bare, _programs())[0], _checked(engine, python, modules)) for _ in range(ROUNDS)]
    plain, together = (median(column) for column in zip(*once, strict=True))
    apart = sum(_checked(engine, python, [module]) for module in modules)
    peer = _peer(engine, python, modules)
    engine.close()
    tell(
        title="Verification",
        how=f"{len(modules)} imports of the rehearsal's image; medians of {ROUNDS}, a container for each once.",
        columns=["what", "seconds"],
        rows=[
            ["one container, bare imports in one process", round(plain, 2)],
            ["one container, a check for each", round(together, 2)],
            ["a container for each check", round(apart, 1)],
            [f"`{PEER}`", peer if isinstance(peer, str) else round(peer, 1)],
        ],
        targets=[
            Target(what="over the bare imports", value=round(together - plain, 2), allowed=ALLOWED_S, unit="s"),
            _times("a container for each check, against one", round(apart / together, 1)),
            _times(
                f"{PEER} on the same list, against one container",
                None if isinstance(peer, str) else round(peer / together, 1),
            ),
        ],
        notes=[f"{PEER} was given each import as a command that has to end with 0."],
    )


def _times(what: str, value: float | None) -> Target:
    return Target(what=what, value=value, allowed=ALLOWED_TIMES, unit="x", at_least=True)


def _programs() -> dict[str, bytes]:
    return {f"{verify.FOLDER}/{name}": (render.PROGRAMS / name).read_bytes() for name in verify.PROGRAMS}


def _checked(engine: Engine, python: str, modules: Sequence[str]) -> float:
    """The seconds of one container that checks the import of each module."""
    check = [python, f"{verify.FOLDER}/check.py", "run", f"{verify.FOLDER}/checks.json"]
    files = _programs() | {f"{verify.FOLDER}/checks.json": listing(python, modules)}
    return seconds(engine, TAG, check, files)[0]


def _modules(engine: Engine, python: str, packages: Sequence[str]) -> list[str]:
    """Modules of the sources' packages and of the standard library."""
    _, output = seconds(engine, TAG, [python, "-c", LISTING, *dict.fromkeys(packages)], {})
    waived = ("megatron_bridge", "fused_kernels")
    modules = [each for each in json.loads(output.splitlines()[-1]) if not any(name in each for name in waived)]
    return ["torch", *modules, *LIBRARY][:CHECKS]


def _peer(engine: Engine, python: str, modules: Sequence[str]) -> float | str:
    """The seconds that the peer takes for the same imports; or why it cannot be had."""
    try:
        folder = peers.installed(PEER, peers.known()[PEER])
    except peers.PeerError as error:
        return str(error)
    tests = [{"name": name, "command": python, "args": ["-c", f"import {name}"], "exitCode": 0} for name in modules]
    environment = dict(os.environ)
    if engine.address.startswith("unix://"):
        environment["DOCKER_HOST"] = engine.address
    with tempfile.TemporaryDirectory() as scratch:
        listed = Path(scratch) / "tests.json"
        listed.write_text(json.dumps({"schemaVersion": "2.0.0", "commandTests": tests}), "utf-8")
        started = time.monotonic()
        run([folder / "bin" / PEER, "test", "--image", TAG, "--config", listed], environment=environment)
        return time.monotonic() - started


if __name__ == "__main__":
    main()
