"""What this tool has left in an engine, and how it goes: ours by its labels and names, and nothing else."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import docker.errors

from builder import client, proof
from builder.engine import CLIENT, OWNER
from builder.errors import EngineError, Problem
from builder.lists import CACHE
from builder.render import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from builder.engine import Engine

DEBUG = f"{LABEL}.debug"  # of an image that is cut off before a step
_REHEARSED = re.compile(r"vime:[a-z0-9._-]+-rehearsal")


@dataclass(frozen=True, slots=True)
class Removed:
    """One thing that is gone, or stays and why."""

    what: str
    bytes: int = 0
    kept: str = ""


def clean(engine: Engine, root: Path, *, images: bool, caches: bool) -> Iterator[Removed]:
    """Remove what is ours: containers, stand-in bases, rehearsals, images without a tag, proofs; each as it is told.

    Args:
        root: the checkout that has proofs of images; those of images that are gone go.
        images: finished images too, which took hours.
        caches: our cache mounts too: the compilers' and pip's, and the logs of compile steps.
    """
    yield from _containers(engine)
    yield from _images(engine, finished=images)
    for image_id in proof.forget(root, lambda image_id: engine.image_id(image_id) is not None):
        yield Removed(f"the proof of {image_id[:19]}")
    if caches:
        yield from _caches(engine)


def after_killed(engine: Engine) -> Iterator[str]:
    """Remove the containers of processes that were killed; the name of each. Nobody else's: all but `clean` may."""
    for container in _ours(engine):
        if client.state(container["Labels"].get(CLIENT, "")) == "gone":
            yield from _removed(engine, container)


def _ours(engine: Engine) -> list[dict[str, Any]]:
    return list(engine.api.containers(all=True, filters={"label": OWNER}))


def _containers(engine: Engine) -> Iterator[Removed]:
    for container in _ours(engine):
        process = container["Labels"].get(CLIENT, "")
        lives, now = client.state(process), container["State"]
        if (now == "running" and lives != "gone") or (now == "created" and lives == "living"):
            host, number, *_ = f"{process}  ".split(" ")
            yield Removed(f"container {_name(container)}", kept=f"in use by process {number} on {host}")
        else:
            yield from (Removed(f"container {name}") for name in _removed(engine, container))


def _removed(engine: Engine, container: Mapping[str, Any]) -> Iterator[str]:
    with contextlib.suppress(docker.errors.NotFound):
        engine.api.remove_container(container["Id"], force=True, v=True)
        yield _name(container)


def _name(container: Mapping[str, Any]) -> str:
    return str(container["Names"][0].lstrip("/"))


def _images(engine: Engine, *, finished: bool) -> Iterator[Removed]:
    api = engine.api
    ours = {
        image["Id"]: image
        for label in (OWNER, f"{LABEL}.image", DEBUG)
        for image in api.images(filters={"label": label})
    }
    for image in ours.values():
        for name in image["RepoTags"] or [image["Id"]]:
            tagged = name != image["Id"]
            labels = image["Labels"] or {}
            is_finished = tagged and f"{LABEL}.image" in labels and not _REHEARSED.fullmatch(name)
            if is_finished and not finished:
                continue
            try:
                api.remove_image(name)
            except docker.errors.APIError as error:  # a container of somebody else's, or an image made from it
                yield Removed(f"image {name}", kept=str(error.explanation))
            else:
                yield Removed(f"image {name}", image["Size"])


def _caches(engine: Engine) -> Iterator[Removed]:
    listed = engine.api.df()
    if "BuildCache" not in listed:
        hint = "this removes everybody's: docker builder prune --filter type=exec.cachemount"
        raise EngineError(Problem("this engine does not list its cache mounts", hint=hint))
    for record in listed["BuildCache"] or []:
        found = re.search(rf'with id "/?({re.escape(CACHE)}[a-z]+)"', record["Description"])
        if found and record["Type"] == "exec.cachemount":
            done = engine.api.prune_builds(filters={"id": [record["ID"]]}, all=True)  # type: ignore[arg-type]
            if done.get("CachesDeleted"):
                yield Removed(f"cache mount {found[1]}", int(done["SpaceReclaimed"]))
            else:
                yield Removed(f"cache mount {found[1]}", kept="a build uses it")
