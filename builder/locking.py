"""A lock from an image: what its plans have installed, if it is one of the manifest and has passed its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder import lock, made, proof
from builder.errors import Problem, UnprovedError
from builder.lock import Lock

if TYPE_CHECKING:
    from pathlib import Path

    from builder.engine import Engine
    from builder.made import Made
    from builder.manifest import Manifest


def image_of(engine: Engine, manifest: Manifest, root: Path) -> Made:
    """The image of a manifest that may lock it: the first of its targets' that this engine has.

    Raises:
        UnprovedError: where there is none, it has other pins, or has not passed its checks.
    """
    tags = [manifest.tag([target]) for target in manifest.gpu_targets]
    tag = next((tag for tag in tags if engine.image_id(tag)), None)
    anew = [f"rm {manifest.lock_file}"] * bool(manifest.stale_lock) + [f"python -m builder image {manifest.name}"]
    hint = " && ".join(anew)
    if tag is None:
        message = f"this engine has none of {', '.join(tags)}: a lock is taken from a verified image"
        raise UnprovedError(Problem(message, hint=hint))
    image = made.read(engine, tag)
    if image.pins != "as manifest" or lock.digest(image.json("manifest.json") or {}) != manifest.resolution:
        message = f"{tag} was made of other pins or requirements than those of {manifest.title}"
        raise UnprovedError(Problem(message, hint=hint))
    proof.passed(root, image.image_id, tag)
    return image


def of(image: Made) -> Lock:
    """Every version that an image's plans have installed; of what several have, the last one's."""
    steps = (image.json("policy.json") or {}).get("steps", ())
    entries = [entry for step in steps for entry in image.plans.get(step, {}).get("distributions", ())]
    versions = {str(entry["name"]): str(entry["version"]) for entry in entries}
    return Lock(lock.digest(image.json("manifest.json")), versions)
