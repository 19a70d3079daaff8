"""Every change of the images that is measured: of pins, of every key of a manifest, of each program in the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.changes import IMAGE, OTHER, OWN, SECOND, SHARED, Change, Edit, program
from benchmarks.every_key import OF_THE_FIRST, OF_THE_SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

LATER_TAGS = {"vllm": "v0.29.1", "transformer_engine": "v2.15.1_rocm"}  # of the stand-ins' later commits
PROGRAMS = ("seal", "source", "judge", "installer", "imports", "device", "trial", "checked", "kinds", "check")
OF_A_BASE = ("base.image", "base.digest")


def one_of_each(
    commits: Mapping[str, str], later: Mapping[str, str], others: Mapping[str, str], wheel: str
) -> tuple[Change, ...]:
    """Every change, for sources that are pinned at `commits`.

    Args:
        later: of each source, a commit with the same files.
        others: by image, another base.
        wheel: another value of the prebuilt wheel's build argument.
    """

    def bump(name: str, path: str = SHARED) -> Edit:
        return path, f"commit: {commits[name]}", f"commit: {later[name]}"

    vllm = (OWN, "tag: v0.29.0", f"tag: {LATER_TAGS['vllm']}")
    engine = (OTHER, "tag: v2.15_rocm", f"tag: {LATER_TAGS['transformer_engine']}")
    return (
        _base("the base", IMAGE, others[IMAGE]),
        Change(what="the GPU target", part="target", arguments=(("GPU_TARGETS", "gfx950"),)),
        _commit("vLLM: tag, commit", "vllm", vllm, bump("vllm", OWN)),
        _commit("torch_memory_saver: commit", "torch_memory_saver", bump("torch_memory_saver")),
        _commit("vime: commit", "vime", bump("vime")),
        _commit("Megatron: commit", "megatron", bump("megatron")),
        *OF_THE_FIRST,
        *map(program, PROGRAMS),
        _base("the base, which ships vLLM", SECOND, others[SECOND]),
        Change(what="the GPU target", part="target", image=SECOND, arguments=(("GPU_TARGETS", "gfx942"),)),
        _commit(
            "TransformerEngine: tag, commit",
            "transformer_engine",
            engine,
            bump("transformer_engine", OTHER),
            image=SECOND,
        ),
        _wheel(wheel),
        *OF_THE_SECOND,
    )


def _base(what: str, image: str, other: str) -> Change:
    return Change(what=what, part="base", keys=OF_A_BASE, image=image, arguments=(("BASE_IMAGE", other),))


def _wheel(other: str) -> Change:
    keys = ("prebuilt.*.address", "prebuilt.*.sha256")
    arguments = (("APEX_WHEEL", other),)
    return Change(what="a prebuilt wheel: address, hash", part="prebuilt", keys=keys, image=SECOND, arguments=arguments)


def _commit(what: str, part: str, *edits: Edit, image: str = IMAGE) -> Change:
    return Change(what=what, part=part, keys=("sources.*.tag", "sources.*.commit"), image=image, edits=edits)
