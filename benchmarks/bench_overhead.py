"""What this tool adds to the engine's own time: whole processes, all steps cached, against `docker buildx build`.

    python benchmarks/bench_overhead.py [RUNS]

The image is the rehearsal's. The two take turns, so that a busy moment hits both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from builder import rehearsal, standin  # noqa: E402 (its own folder comes first)
from builder.engine import Engine  # noqa: E402
from builder.project import load  # noqa: E402

IMAGE = "rocm7.14"
# Verification is ours alone, so it is left out; all else of `image` is in: start, manifest, rendering, connecting.
OURS = f"""
import gc, json, sys
gc.set_threshold(100_000)  # as __main__ has it
from builder import build, buildkit
from builder.engine import Engine
from builder.project import load
manifest, facts = load({IMAGE!r})
engine = Engine("benchmark")
arguments = json.load(sys.stdin)
targets = manifest.gpu_targets[:1]
order = build.Order(manifest=manifest, facts=facts, gpu_targets=targets, tag="x:y", arguments=arguments)
built = buildkit.build(
    engine, order.dockerfile, arguments=order.build_arguments, watch=lambda event: None, network="none"
)
print(built.image_id)
"""


def seconds(command: list[str], text: str, environment: dict[str, str]) -> tuple[float, str]:
    started = time.perf_counter()
    done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    return time.perf_counter() - started, done.stdout.strip()


def main(runs: int) -> None:
    manifest, facts = load(IMAGE)
    engine = Engine("benchmark")
    order = rehearsal.order(
        engine, manifest, facts, manifest.gpu_targets[:1], standin.Ingredients(cache=ROOT / ".cache"), lambda _: None
    )
    environment = dict(os.environ)
    if engine.address.startswith("unix://"):
        environment["DOCKER_HOST"] = engine.address
    theirs = ["docker", "buildx", "build", "--quiet", "--provenance=false", "--network=none"]
    theirs += [f"--build-arg={name}={value}" for name, value in order.build_arguments.items()] + ["-"]
    ours = [sys.executable, "-c", OURS]
    times: dict[str, list[float]] = {"buildx": [], "ours": []}
    for _ in range(runs + 1):
        took = {
            "buildx": seconds(theirs, order.dockerfile, environment),
            "ours": seconds(ours, json.dumps(order.build_arguments), environment),
        }
        assert took["buildx"][1] == took["ours"][1], "not the same image"  # noqa: S101
        for name, (spent, _) in took.items():
            times[name].append(spent)
    medians = {name: round(statistics.median(spent[1:]), 3) for name, spent in times.items()}  # the first one warms up
    limit = medians["buildx"] * 1.03 + 0.3
    verdict = {**medians, "limit": round(limit, 3), "within": medians["ours"] <= limit, "runs": runs}
    sys.stdout.write(json.dumps(verdict) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
