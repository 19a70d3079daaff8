"""The image as it is when a step begins, for a person to look around in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder import build, dockerfile, steps
from builder.terminal import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from builder.build import Order
    from builder.engine import Engine
    from builder.trace import Event

FOLDER = "/vime-image-debug"


@dataclass(frozen=True, slots=True)
class Scene:
    """What a person finds, and is told first."""

    session: Session
    files: Mapping[str, bytes]
    greeting: str


def before(engine: Engine, order: Order, step: str, command: Sequence[str], watch: Callable[[Event], None]) -> Scene:
    """The scene before a step of the order's image; the steps before it are built, or in the cache.

    Raises:
        UsageError: where there is no such step.
        BuildFailedError: where an earlier step failed.
    """
    path = f"{FOLDER}/{step}.sh"
    image_id = build.make_before(engine, order, step, watch)
    return Scene(
        session=Session(
            image=image_id,
            command=tuple(command) or ("bash",),
            environment=arguments(order, step),
            host={"network_mode": order.network},
        ),
        files={path: steps.script(order.dockerfile, step).encode()},
        greeting=f"before {step}; its script: bash -euo pipefail {path}\n"
        "the caches of its mounts are not here; what is changed here goes when this ends",
    )


def arguments(order: Order, step: str) -> dict[str, str]:
    """The build arguments that the step's script sees."""
    declared = [i.text for i in dockerfile.parse(steps.before(order.dockerfile, step)) if i.keyword == "ARG"]
    defaults = dict(text.partition("=")[::2] for text in declared)
    return {name: order.build_arguments.get(name, value) for name, value in defaults.items()}
