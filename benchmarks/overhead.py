"""What this tool adds to the engine's own time: whole processes, against `docker buildx build` of the same file.

Warm, every step is in the engine's cache. Cold, none is taken from it and the cache mounts are empty: they have names
of their own here, so that nobody's compile cache goes.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from typing import TYPE_CHECKING

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, in_turn, medians, run
from builder import rehearsal, standin
from builder.engine import Engine
from builder.lists import CACHE
from builder.project import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.build import Order

IMAGE, ALLOWED_S, ALLOWED_SHARE = "rocm7.14", 0.3, 0.03
ROUNDS = {"warm": 10, "cold": 5}
OWN_MOUNTS = f"id={CACHE}benchmark-"
# Verification is ours alone, so it is left out; all else of `image` is in: start, manifest, rendering, connecting.
OURS = f"""
import gc, json, sys
gc.set_threshold(10_000)  # as __main__ has it
from builder import build, buildkit
from builder.engine import Engine
from builder.project import load
manifest, facts = load({IMAGE!r})
engine = Engine("benchmark")
asked = json.load(sys.stdin)
targets = manifest.gpu_targets[:1]
order = build.Order(manifest=manifest, facts=facts, gpu_targets=targets, tag="x:y", arguments=asked["arguments"])
built = buildkit.build(
    engine,
    order.dockerfile.replace(*asked["mounts"]),
    arguments=order.build_arguments,
    watch=lambda event: None,
    network="none",
    no_cache=asked["no_cache"],
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
    spent = {state: in_both(engine, order, environment, state) for state in ROUNDS}
    engine.close()
    report(spent)


def in_both(engine: Engine, order: Order, environment: Mapping[str, str], state: str) -> dict[str, list[float]]:
    """The seconds of each round, by buildx and by us."""
    cold = state == "cold"
    mounts = (f"id={CACHE}", OWN_MOUNTS if cold else f"id={CACHE}")
    theirs = ["docker", "buildx", "build", "--quiet", "--provenance=false", "--network=none"]
    theirs += [f"--build-arg={name}={value}" for name, value in order.build_arguments.items()]
    theirs += ["--no-cache", "-"] if cold else ["-"]
    text = order.dockerfile.replace(*mounts)
    ours = json.dumps({"arguments": order.build_arguments, "mounts": mounts, "no_cache": cold})
    images = set[str]()
    actions = {
        "buildx": lambda: images.add(run(theirs, environment=environment, text=text).strip()),
        "ours": lambda: images.add(run([sys.executable, "-c", OURS], environment=environment, text=ours).strip()),
    }
    spent = in_turn(actions, ROUNDS[state])
    # Cached, both have the same image; a build that ran all its steps has one of its own, by their times.
    wanted = 2 * (ROUNDS[state] + 1) if cold else 1
    if len(images) != wanted:
        sys.exit(f"{state}: {len(images)} images, not {wanted}")
    for image in images if cold else ():
        engine.remove_image(image)
    return spent


def report(spent: Mapping[str, Mapping[str, list[float]]]) -> None:
    found = {state: medians(each) for state, each in spent.items()}
    over = {state: round(_over(each), 2) for state, each in spent.items()}
    cold = spent["cold"]["buildx"]
    tell(
        title="Our overhead over the engine",
        how=f"The rehearsal of {IMAGE}, by each in turn: all cached, which leaves both with the same image, and with "
        f"nothing cached (`--no-cache`, cache mounts empty). Whole processes, medians of {ROUNDS['warm']} and "
        f"{ROUNDS['cold']}.",
        columns=["what", "cold (s)", "warm (s)"],
        rows=[
            [f"`{name}`", round(found["cold"][key], 2), round(found["warm"][key], 2)]
            for key, name in (("buildx", "docker buildx build"), ("ours", "image"))
        ],
        targets=[
            Target(what="`image` over buildx and its 3 %", value=over["warm"], allowed=ALLOWED_S, unit="s"),
            Target(what="the same, cold", value=over["cold"], allowed=ALLOWED_S, unit="s"),
        ],
        notes=[
            "What is over is the median of the rounds' own differences.",
            f"Cold rounds of buildx alone differ by {statistics.stdev(cold):.1f} s (standard deviation).",
        ],
    )


def _over(spent: Mapping[str, list[float]]) -> float:
    """What ours takes beyond buildx and its share."""
    pairs = zip(spent["ours"], spent["buildx"], strict=True)
    return statistics.median(ours - theirs * (1 + ALLOWED_SHARE) for ours, theirs in pairs)


if __name__ == "__main__":
    main()
