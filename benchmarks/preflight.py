"""Preflight of rocm7.14, as people type it, when it has been asked before: what it has fetched is in its cache."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import pinned
from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, in_turn, medians, run

sys.path.insert(0, str(ROOT / "tests" / "unit"))

import origins
from copies import copied

IMAGE, ROUNDS, ALLOWED_S = "rocm7.14", 5, 10
WARM, OFFLINE = f"preflight {IMAGE}", f"preflight {IMAGE} --offline"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as index:
        root = copied(Path(scratch)).root
        # No engine: whether its disk has room for the real base is not what is measured.
        environment = os.environ | {"PYTHONPATH": str(root), "DOCKER_HOST": "unix:///nowhere.sock"}
        environment |= pinned.reached(Path(scratch), origins.packages(Path(index)))

        def asked(words: str) -> str:
            return run([sys.executable, "-m", "builder", *words.split()], cwd=root, environment=environment)

        asked(f"render {IMAGE}")
        started = time.perf_counter()
        asked(WARM)
        first = time.perf_counter() - started
        spent = medians(in_turn({words: lambda words=words: asked(words) for words in (WARM, OFFLINE)}, ROUNDS))  # type: ignore[misc]
    tell(
        title="Preflight",
        how=f"Whole processes, medians of {ROUNDS}. The repositories are of this machine, made of the stand-ins of the "
        "sources, and so is the index: a real vLLM has over 2,000 files of Python (see the sections below), a network "
        "takes its time.",
        columns=["command", "sources", "took (s)"],
        rows=[
            [f"`{WARM}`", "stand-ins, fetched by this very command", round(first, 2)],
            [f"`{WARM}`", "stand-ins, cached", round(spent[WARM], 2)],
            [f"`{OFFLINE}`", "stand-ins, cached", round(spent[OFFLINE], 2)],
        ],
        targets=[Target(what="preflight on cached sources", value=round(spent[WARM], 2), allowed=ALLOWED_S, unit="s")],
        notes=["No engine was asked, so none of what the build stands on was."],
    )


if __name__ == "__main__":
    main()
