"""Every change of the images that is measured: of their pins, of every key of a manifest, of each program they carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.changes import IMAGE, OTHER, OWN, SECOND, SHARED, Change, Edit, program
from benchmarks.every_key import OF_THE_FIRST, OF_THE_SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

LATER_TAG = "v0.29.1"  # of the stand-in vLLM's later commit
PROGRAMS = ("seal", "source", "judge", "installer", "imports", "device", "trial", "checked", "kinds", "check")


def one_of_each(
    commits: Mapping[str, str], later: Mapping[str, str], others: Mapping[str, str], wheel: str
) -> tuple[Change, ...]:
    """Every change, for sources that are pinned at `commits`.

    Args:
        later: of each source, a commit with the same files.
        others: by image, another base.
        wheel: another value of the prebuilt wheel's build argument.
    """

    def commit(name: str, path: str = SHARED) -> Edit:
        return path, f"commit: {commits[name]}", f"commit: {later[name]}"

    def bump(what: str, part: str, *edits: Edit, keys: str = "sources.*.commit", image: str = IMAGE) -> Change:
        return Change(what=what, part=part, keys=tuple(keys.split()), image=image, edits=edits)

    tag = (OWN, "tag: v0.29.0", f"tag: {LATER_TAG}")
    bases = {image: (("BASE_IMAGE", other),) for image, other in others.items()}
    of_a_base = ("base.image", "base.digest")
    return (
        Change(what="the base", part="base", keys=of_a_base, arguments=bases[IMAGE]),
        Change(what="the GPU target", part="target", arguments=(("GPU_TARGETS", "gfx950"),)),
        bump("vLLM: tag, commit", "vllm", tag, commit("vllm", OWN), keys="sources.*.tag sources.*.commit"),
        bump("torch_memory_saver: commit", "torch_memory_saver", commit("torch_memory_saver")),
        bump("vime: commit", "vime", commit("vime")),
        bump("Megatron: commit", "megatron", commit("megatron")),
        *OF_THE_FIRST,
        *map(program, PROGRAMS),
        Change(what="the base, which ships vLLM", part="base", keys=of_a_base, image=SECOND, arguments=bases[SECOND]),
        Change(what="the GPU target", part="target", image=SECOND, arguments=(("GPU_TARGETS", "gfx942"),)),
        bump("TransformerEngine: commit", "transformer_engine", commit("transformer_engine", OTHER), image=SECOND),
        Change(
            what="a prebuilt wheel: address, hash",
            part="prebuilt",
            keys=("prebuilt.*.address", "prebuilt.*.sha256"),
            image=SECOND,
            arguments=(("APEX_WHEEL", wheel),),
        ),
        *OF_THE_SECOND,
    )
