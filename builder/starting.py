"""What a new image begins with: a manifest on some base, complete but for what nobody has looked up yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from builder import base_pin
from builder import manifest as manifests
from builder.entries import UNKNOWN, Base

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.facts import Facts

TARGETS = ("gfx942", "gfx950")  # that Megatron-LM is known to train on
_HEAD = """\
# yaml-language-server: $schema=../schema/image.schema.json
# {summary}.
# Its pins stand here, those that it shares in shared/vime.yaml; `make render` writes dockerfiles/Dockerfile.{name}.
summary: {summary}
extends: vime

base:
  image: {base.image}
  digest: {base.digest}
  facts: {base.facts}

# The first is the default.
gpu_targets: [{targets}]
"""
_SHIPPED = """
sealed:
  vllm:
    reason: the base ships it

sources:
  vllm:
    recipe: shipped
    repository: https://github.com/vllm-project/vllm
    tag: v{version}
    commit: unknown
    distribution: vllm
    modules: [vllm]
"""
_BUILT = """
sources:
  vllm:
    recipe: wheel
    repository: https://github.com/vllm-project/vllm
    commit: unknown
    distribution: vllm
    modules: [vllm]
    requirements:
      file: requirements/rocm.txt
"""


def base(image: str, digest: str, folder: Path) -> tuple[Base, Facts | None]:
    """The base, and what is known of it; where nobody could ask for its digest, the one that is known."""
    for name, facts in base_pin.known(folder, image).items():
        if digest in {facts.digest, UNKNOWN}:
            return Base(image=image, digest=facts.digest, facts=name), facts
    return Base(image=image, digest=digest, facts=base_pin.facts_name(image)), None


def manifest(path: Path, base: Base, facts: Facts | None) -> str:
    """The text of a manifest at `path`, on a base whose facts may not be there yet.

    Raises:
        ManifestError: where an image can have no such name.
    """
    shipped = {
        str(canonicalize_name(name)): version for name, version in (facts.distributions if facts else {}).items()
    }
    known = facts.device_code if facts else None
    targets = [target for target in TARGETS if known is None or target in known] or known or ()
    summary = f"vLLM, Megatron-LM and vime on {base.image}"
    text = _HEAD.format(name=path.stem, summary=summary, base=base, targets=", ".join(targets))
    text += _SHIPPED.format(version=Version(shipped["vllm"]).public) if "vllm" in shipped else _BUILT
    manifests.parse(text.encode(), path)
    return text


def steps(name: str, base: Base, facts: Facts | None) -> Iterator[str]:
    """The commands that come next."""
    if facts is None:
        yield f"python -m builder facts {base.facts} --image {base.reference}"
    yield f"edit images/{name}.yaml"
    yield from (f"python -m builder {command} {name}" for command in ("render", "check", "preflight", "rehearse"))
