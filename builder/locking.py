"""A lock from an image: what its plans have installed, if it is one of the manifest and has passed its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder import lock, made, proof, records
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
        ForgedRecordError: where what it carries is not what we write.
    """
    tags = [manifest.tag([target]) for target in manifest.gpu_targets]
    tag = next((tag for tag in tags if engine.image_id(tag)), None)
    anew = [f"rm {manifest.lock_file}"] * bool(manifest.stale_lock) + [f"python -m builder image {manifest.name}"]
    hint = " && ".join(anew)
    if tag is None:
        message = f"this engine has none of {', '.join(tags)}: a lock is taken from a verified image"
        raise UnprovedError(Problem(message, hint=hint))
    image = made.read(engine, tag)
    if image.pins != "as manifest" or image.resolution != manifest.resolution:
        message = f"{tag} was made of other pins or requirements than those of {manifest.title}"
        raise UnprovedError(Problem(message, hint=hint))
    proof.passed(root, image.image_id, tag)
    return image


def of(image: Made) -> Lock:
    """Every version that an image's plans have installed; of what several have, the last one's.

    Raises:
        ForgedRecordError: where it does not carry all of its plans, or one has what no line of a lock can hold.
    """
    policy, plans, resolution = image.record("policy.json", records.Policy), image.plans, image.resolution
    missing = [f"plans/{step}" for step in policy.steps if step not in plans] if policy else ["policy"]
    if missing or not resolution:
        raise records.forged(f"what {image.tag} carries of its plans", f"no {', '.join(missing or ['manifest'])}")
    entries = [entry for step in (policy.steps if policy else ()) for entry in plans[step].distributions]
    for entry in entries:
        if not lock.is_line(line := f"{entry.name}=={entry.version}"):
            raise records.forged(f"a plan of {image.tag}", f"{line!r} is no line of a lock")
    return Lock(resolution, {entry.name: entry.version for entry in entries})
