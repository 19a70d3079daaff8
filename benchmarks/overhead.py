"""What this tool adds to the engine's own time: whole processes, against `docker buildx build` of the same file."""

from __future__ import annotations

import json
import os
import sys

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, in_turn, medians, run
from builder import rehearsal, standin
from builder.engine import Engine
from builder.project import load

IMAGE, ROUNDS, ALLOWED_S, ALLOWED_SHARE = "rocm7.14", 10, 0.3, 0.03
# Verification is ours alone, so it is left out; all else of `image` is in: start, manifest, rendering, connecting.
OURS = f"""
import gc, json, sys
gc.set_threshold(10_000)  # as __main__ has it
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


def main() -> None:
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
    images = set[str]()
    actions = {
        "buildx": lambda: images.add(run(theirs, environment=environment, text=order.dockerfile).strip()),
        "ours": lambda: images.add(
            run([sys.executable, "-c", OURS], environment=environment, text=json.dumps(order.build_arguments)).strip()
        ),
    }
    spent = medians(in_turn(actions, ROUNDS))
    assert len(images) == 1, "not the same image"  # noqa: S101
    more = spent["ours"] - spent["buildx"] * (1 + ALLOWED_SHARE)
    tell(
        title="Our overhead over the engine",
        how=f"The rehearsal of {IMAGE}, all cached, the same image from both; whole processes, median of {ROUNDS}.",
        columns=["what", "median (s)"],
        rows=[
            [f"`{name}`", round(spent[key], 2)] for key, name in (("buildx", "docker buildx build"), ("ours", "image"))
        ],
        targets=[
            Target(what="`image` over buildx and its 3 %", value=round(more, 2), allowed=ALLOWED_S, unit="s"),
            Target(what="the same, cold", value=None, allowed=ALLOWED_S, unit="s"),
        ],
        notes=["Cold builds were not compared: two of them differ by more seconds than are to be measured."],
    )
    engine.close()


if __name__ == "__main__":
    main()
