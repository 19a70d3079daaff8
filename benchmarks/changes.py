"""Changes of an image, one of each part of its manifest and of each program that it carries; all leave it sound."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
IMAGE = "rocm7.14"
OWN, SHARED = f"images/{IMAGE}.yaml", "images/shared/vime.yaml"
PATCH = "images/patches/vime/engine-mask.patch"
LATER_TAG = "v0.29.1"  # of the stand-in vLLM's later commit
LIBRARIES = "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_devel/lib"

Edit = tuple[str, str, str]  # a file, what stands there, what then stands there


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change.

    Attributes:
        part: what of the image it changes, as `bumps.READS` names it.
        edits: of files of the project.
        arguments: of the build, where a base or a target is another.
    """

    what: str
    part: str
    edits: tuple[Edit, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()

    def apply(self, project: Path) -> None:
        for name, old, new in self.edits:
            path = project / name
            text = path.read_text("utf-8")
            if old not in text:
                raise SystemExit(f"{self.what}: {name} no longer has {old!r}")
            path.write_text(text.replace(old, new, 1), "utf-8")


def one_of_each(commits: Mapping[str, str], later: Mapping[str, str], other_base: str) -> tuple[Change, ...]:
    """Every change, for sources that are pinned at `commits`."""

    def commit(name: str) -> Edit:
        return OWN if name == "vllm" else SHARED, f"commit: {commits[name]}", f"commit: {later[name]}"

    return (
        Change(what="the base", part="base", arguments=(("BASE_IMAGE", other_base),)),
        Change(what="the GPU target", part="target", arguments=(("GPU_TARGETS", "gfx950"),)),
        Change(
            what="vLLM: tag, commit", part="vllm", edits=((OWN, "tag: v0.29.0", f"tag: {LATER_TAG}"), commit("vllm"))
        ),
        Change(what="torch_memory_saver: commit", part="torch_memory_saver", edits=(commit("torch_memory_saver"),)),
        Change(what="vime: commit", part="vime", edits=(commit("vime"),)),
        Change(what="Megatron: commit", part="megatron", edits=(commit("megatron"),)),
        *_OF_THE_MANIFEST,
        *map(
            _program,
            ("seal", "source", "judge", "installer", "imports", "device", "trial", "checked", "kinds", "check"),
        ),
    )


def _program(name: str) -> Change:
    path, first = f"builder/inside/{name}.py", '"""'
    return Change(what=f"{name}.py", part=f"{name}.py", edits=((path, first, f"# Another word.\n{first}"),))


def _edit(what: str, part: str, path: str, old: str, new: str) -> Change:
    return Change(what=what, part=part, edits=((path, old, new),))


def _more(what: str, part: str, path: str, key: str, *lines: str) -> Change:
    """An entry more, as the first one of its key."""
    return _edit(what, part, path, f"\n{key}:\n", "".join(f"{line}\n" for line in (f"\n{key}:", *lines)))


def _without(*tools: str) -> tuple[Edit, ...]:
    text = (ROOT / SHARED).read_text("utf-8")
    found = [re.search(rf"^  {tool}:\n(?:    .*\n)+", text, re.MULTILINE) for tool in tools]
    return tuple((SHARED, entry[0], "") for entry in found if entry)


def _repinned() -> tuple[Edit, Edit]:
    """Another word of the patch's prose, and the digest that belongs to it."""
    old = (ROOT / PATCH).read_text("utf-8")
    new = f"Another word.\n{old}"
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (old, new)]
    return (PATCH, old, new), (SHARED, digests[0], digests[1])


_NOTHING = ("  no-such-thing:", "    reason: nothing")
_OF_THE_MANIFEST = (
    _edit("sealed", "sealed", OWN, "apex:\n    reason", "apex:\n    optional: true\n    reason"),
    _more("links", "links", OWN, "links", "  /usr/lib/another.so:", f"    to: {LIBRARIES}/libamdhip64.so", _NOTHING[1]),
    Change(what="build tools", part="build_tools", edits=_without("setuptools-rust", "semantic-version")),
    Change(what="a local patch of vime", part="patch", edits=_repinned()),
    _edit("a constraint", "policy", SHARED, "version: <26\n", "version: <27\n"),
    _more("a forbidden distribution", "policy", OWN, "forbidden", *_NOTHING),
    _more("a removed distribution", "removed", OWN, "removed", *_NOTHING, "    optional: true"),
    _edit("a requirement of vLLM", "vllm_set", OWN, 'version: ">=1.4"', 'version: ">=1.3"'),
    _edit("a requirement of vime", "vime_set", SHARED, "version: ==0.4.2", 'version: "<=0.4.2"'),
    _edit("a variable (ENV)", "env", OWN, 'value: "0"', 'value: "1"'),
    _edit(
        "a forbidden variable",
        "checks",
        OWN,
        "\nforbidden_env:\n",
        "\nforbidden_env:\n  NO_SUCH_THING:\n    reason: nothing\n",
    ),
    _edit("a check: a module more", "checks", OWN, "modules: [vllm]", "modules: [vllm, vllm.engine]"),
    _edit("a label: the summary", "label", OWN, "summary: vLLM", "summary: today vLLM"),
    _edit("the entry point", "entry point", SHARED, "[sleep, infinity]", '[sleep, "1000000"]'),
    _edit("needs", "needs", OWN, "minutes: 300", "minutes: 200"),
)
