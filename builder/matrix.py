"""The matrix: each image for each of its targets, as those read it who build on other machines."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from builder import build as building
from builder import dockerfile, git
from builder import manifest as manifests
from builder.build import Order
from builder.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from builder.facts import Facts
    from builder.manifest import Manifest, Need

NEEDS: tuple[Need, ...] = ("disk_gb", "memory_gb", "minutes")
QUEUE = "vime-images"  # of the agents that build, with Buildkite


def orders(images: Iterable[tuple[Manifest, Facts]]) -> list[Order]:
    """An order for each image and target; images whose pins are not all established have none."""
    return [
        Order(manifest=manifest, facts=facts, gpu_targets=(target,), tag=manifest.tag([target]), arguments={})
        for manifest, facts in images
        if not manifests.unknowns(manifest)
        for target in manifest.gpu_targets
    ]


def in_turn(found: Iterable[Order], root: Path) -> list[Order]:
    """One of each compile first, so that the others find it in a cache; of those the shortest first.

    By what their steps took last, or else by the minutes that their manifests declare; what nobody knows comes last.
    `benchmarks/farm.py` has this order beside others.
    """

    def expected(order: Order) -> float:
        declared = float(order.manifest.needs.get("minutes", math.inf)) * 60
        return sum(building.earlier_seconds(root, order.tag).values()) or declared

    before = Counter[object]()
    turns = list[tuple[int, Order]]()
    for order in sorted(found, key=expected):
        turns.append((before[compiled(order)], order))
        before[compiled(order)] += 1
    return [order for _, order in sorted(turns, key=lambda turn: turn[0])]


def compiled(order: Order) -> object:
    """What the steps as far as the last compile are made of: a cache has those of equal ones only once."""
    steps = dockerfile.parse(order.dockerfile)
    last = max(at for at, one in enumerate(steps) if one.keyword == "RUN" and one.name.startswith("BUILD_"))
    return tuple(one.inputs for one in steps[: last + 1]), tuple(sorted(order.build_arguments.items()))


def changed_since(reference: str, found: Sequence[Order], root: Path) -> list[Order]:
    """Those whose Dockerfile has other instructions than the one that was committed then, or that had none.

    Raises:
        UsageError: where git does not know the revision.
    """
    commit = git.revision(root, reference)
    differs = {}
    for order in found:  # all targets of an image have one file
        if order.manifest.name not in differs:
            differs[order.manifest.name] = _differs(order, commit, root)
    return [order for order in found if differs[order.manifest.name]]


def _differs(order: Order, commit: str, root: Path) -> bool:
    then, now = git.git(root, "show", f"{commit}:./{order.manifest.dockerfile}"), order.dockerfile
    return then.returncode != 0 or (then.stdout != now and _instructions(then.stdout) != _instructions(now))


def _instructions(text: str) -> list[object]:
    return [instruction.inputs for instruction in dockerfile.parse(text)]


def entry(order: Order) -> dict[str, object]:
    """An image and a target; every scalar is a text, so that no reader makes 7.1 of 7.10."""
    return {
        "image": order.manifest.name,
        "gpu_target": order.gpu_targets[0],
        "dockerfile": order.manifest.dockerfile,
        "tags": _tags(order),
        "arguments": order.build_arguments,
        **{need: order.manifest.needs.get(need, UNKNOWN) for need in NEEDS},
    }


def as_json(found: Sequence[Order]) -> str:
    return json.dumps([entry(order) for order in found], indent=2) + "\n"


def github(found: Sequence[Order]) -> str:
    """One line, for `fromJSON` as a job's `strategy.matrix`."""
    return json.dumps({"include": [entry(order) for order in found]}) + "\n"


def buildkite(found: Sequence[Order]) -> str:
    """A pipeline to upload, in the JSON that is YAML too; for nothing to build, a step that says so."""
    nothing = {"label": "no image to build", "command": "true"}
    return (
        json.dumps({"agents": {"queue": QUEUE}, "steps": [_step(order) for order in found] or [nothing]}, indent=2)
        + "\n"
    )


def _step(order: Order) -> dict[str, object]:
    name, target = order.manifest.name, order.gpu_targets[0]
    minutes = order.manifest.needs.get("minutes")
    return {
        "label": f"{name} {target}",
        "key": key(order),
        "commands": [
            f"make preflight IMAGE={name}",
            f"make image IMAGE={name} ARGS='--gpu-target {target} --plain'",
            f"make verify TAG={order.tag}",
        ],
        "env": {need.upper(): order.manifest.needs.get(need, UNKNOWN) for need in NEEDS},
        **({"timeout_in_minutes": int(minutes)} if minutes else {}),
    }


def bake(found: Sequence[Order]) -> str:
    """A file for `docker buildx bake`, complete: the Dockerfiles stand in it.

    Bake gives the tags where the checks in the Dockerfile pass; those of the checkout are `verify`'s.
    """
    targets = {
        key(order): {
            "dockerfile-inline": _literal(order.dockerfile),
            "args": {name: _literal(value) for name, value in order.build_arguments.items()},
            "tags": _tags(order),
        }
        for order in found
    }
    return json.dumps({"group": {"default": {"targets": list(targets)}}, "target": targets}, indent=2) + "\n"


def _literal(text: str) -> str:
    """A text that stays what it is where HCL reads every text as a template."""
    return re.sub(r"([$%])\{", r"\1\1{", text)


def key(order: Order) -> str:
    """The name of an image and target where only letters, digits, - and _ may stand."""
    return order.tag.partition(":")[2].replace(".", "-")


def _tags(order: Order) -> list[str]:
    return [order.tag, *([order.fixed_tag] if order.fixed_tag else [])]


FORMATS: Mapping[str, Callable[[Sequence[Order]], str]] = {
    "bake": bake,
    "buildkite": buildkite,
    "github": github,
    "json": as_json,
}
