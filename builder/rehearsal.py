"""Rehearse an image: its own Dockerfile, byte for byte, on a stand-in base; only build arguments differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder import standin
from builder.build import Order

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest
    from builder.trace import Event


def order(  # noqa: PLR0913 (each is one fact of the rehearsal)
    engine: Engine,
    manifest: Manifest,
    facts: Facts,
    gpu_targets: tuple[str, ...],
    watch: Callable[[Event], None],
    *,
    cache: Path,
    root_image: str | None = None,
) -> Order:
    """The order for a rehearsal; makes the stand-in base where this engine does not have it yet.

    Raises:
        StandInError: where the stand-in cannot be made here.
    """
    stand_in = standin.make(engine, manifest, facts, watch, cache=cache, root_image=root_image)
    commits = {manifest.sources[name].commit_argument: commit for name, commit in stand_in.commits.items()}
    return Order(
        manifest=manifest,
        facts=facts,
        gpu_targets=gpu_targets,
        tag=f"{manifest.tag(gpu_targets)}-rehearsal",
        arguments={"BASE_IMAGE": stand_in.reference, **commits},
        network="none",
    )
