"""Rehearse an image: its own Dockerfile, byte for byte, on a stand-in base; only build arguments differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder import standin
from builder.build import Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest
    from builder.standin import Ingredients
    from builder.trace import Event

SUFFIX = "-rehearsal"  # of the tag


def order(  # noqa: PLR0913, PLR0917 (each is one fact of the rehearsal)
    engine: Engine,
    manifest: Manifest,
    facts: Facts,
    gpu_targets: tuple[str, ...],
    ingredients: Ingredients,
    watch: Callable[[Event], None],
) -> Order:
    """The order for a rehearsal; makes the stand-in base where this engine does not have it yet.

    Raises:
        StandInError: where the stand-in cannot be made here.
    """
    stand_in = standin.make(engine, manifest, facts, ingredients, watch)
    return Order(
        manifest=manifest,
        facts=facts,
        gpu_targets=gpu_targets,
        tag=f"{manifest.tag(gpu_targets)}{SUFFIX}",
        arguments={"BASE_IMAGE": stand_in.reference, **stand_in.arguments},
        # The engine's own network: behind a proxy or a private name server, a bridge often has none.
        network="host" if ingredients.index == "real" else "none",
    )
