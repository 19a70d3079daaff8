"""Pin another base: what its registry has under a tag today, and whether the facts of the base are of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from builder import facts as bases
from builder import registry
from builder import vocabulary as v
from builder.bump import Change
from builder.errors import Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest

KEY = "base"  # in place of a source's name


def image(manifest: Manifest, tag: str) -> str:
    """The base's image under another tag.

    Raises:
        UsageError: where it can be no tag.
    """
    try:
        return v.image(f"{registry.repository(manifest.base.image)}:{tag}")
    except PydanticCustomError as error:
        raise UsageError(Problem(f"{KEY}={tag}: {error}", hint=(error.context or {}).get("hint"))) from None


def changes(engine: Engine, manifest: Manifest, image: str, folder: Path) -> tuple[Change, ...]:
    """The scalars of `base` that become others: image, digest, and the facts' name where there are facts of that.

    Args:
        image: with its tag.
        folder: where facts are.

    Raises:
        BaseImageError: where the registry does not have it, or is not reached.
    """
    digest = registry.digest(engine, image)
    pairs = {"image": (manifest.base.image, image), "digest": (manifest.base.digest, digest)}
    fitting = [name for name, facts in known(folder, image).items() if facts.digest == digest]
    if fitting and manifest.base.facts not in fitting:
        pairs["facts"] = (manifest.base.facts, fitting[0])
    return tuple(Change((KEY, key), old, new) for key, (old, new) in pairs.items() if old != new)


def facts_problems(manifest: Manifest, root: Path) -> Iterator[Problem]:
    """Where the facts that a manifest names are of another base than it has."""
    base = manifest.base
    facts = bases.load(root / bases.FOLDER / f"{base.facts}.yaml")
    if facts.image == base.image and (facts.digest == base.digest or v.UNKNOWN in {facts.digest, base.digest}):
        yield from bases.shipped_otherwise(manifest, facts)
        return
    where = facts.where("digest" if facts.image == base.image else "image")
    name = base.facts if facts.image == base.image else facts_name(base.image)
    hint = f"have it read: python -m builder facts {name} --image {base.reference}"
    of = f"{facts.image}@{facts.digest}"
    yield Problem(f"base.facts: {base.facts} is of {of}, the base is {base.reference}", where, hint)


def known(folder: Path, image: str) -> dict[str, Facts]:
    """The facts of an image that are there, by their names."""
    every = {path.stem: bases.load(path) for path in sorted(folder.glob("*.yaml"))}
    return {name: facts for name, facts in every.items() if facts.image == image}


def facts_name(image: str) -> str:
    """What a base's facts may be called: `primus-v26.4` for `rocm/primus:v26.4`."""
    return image.rpartition("/")[2].replace(":", "-").lower()
