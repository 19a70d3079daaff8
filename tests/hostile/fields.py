"""Hostile values for every field of a manifest: where each text stands, and what is put there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from inputs import BITS
from manifests import ROOT, facts_of

from builder import located_yaml, manifest
from builder.manifest import Manifest

Spot = tuple[str | int | None, ...]

PATH = ROOT / "tests/manifests/good/spelling.yaml"
_REASON = {"reason": "why"}
_SPELLING: dict[str, Any] = located_yaml.load(PATH).value
_SOURCES: dict[str, Any] = _SPELLING["sources"]
_MORE_OF_VLLM = {
    "submodules": "true",
    "build_env": {"A_BUILD": {"value": "on", **_REASON}},
    "tests": ("tests/test_a.py",),
}
_TOOL = {"version": "1.0", "sha256": "1e5" + "0" * 60 + "1", **_REASON}
_MORE: dict[str, Any] = {
    "needs": {"disk_gb": "10"},
    "source_builds": {"fire": _REASON},
    "installer": {"uv": _TOOL},
    "ignored_pip_options": {"extra-index-url": _REASON},
    "executables": {"/opt/a/bin/tool": _REASON},
    "prebuilt": {
        "apex": {
            "address": "https://wheels.example.org/apex-1.0-py3-none-any.whl",
            "sha256": _TOOL["sha256"],
            "modules": ("apex",),
            **_REASON,
        }
    },
}
# A manifest in which every field stands, but `extends`: what that names would be another file.
VALUE = {**_SPELLING, **_MORE, "sources": {**_SOURCES, "vllm": {**_SOURCES["vllm"], **_MORE_OF_VLLM}}}
FACTS = facts_of(manifest.load(PATH))

values = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from(BITS), max_size=6).map("".join),
    st.lists(st.sampled_from([bit for bit in BITS if bit.isprintable()]), max_size=6).map("".join),
    st.integers(190, 5_000).map(lambda size: "x" * size),
)


def spots(value: object, path: Spot = ()) -> Iterator[Spot]:
    """The place of every text in a document; of a key, with None behind it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key, None)
            yield from spots(inner, (*path, key))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from spots(inner, (*path, index))
    else:
        yield path


SPOTS = list(spots(VALUE))


def put(value: Any, path: Spot, text: str) -> Any:
    """A document with another text at a place."""
    if not path:
        return text
    if isinstance(value, tuple):
        return tuple(put(inner, path[1:], text) if index == path[0] else inner for index, inner in enumerate(value))
    if path[1:] == (None,):
        return {text if key == path[0] else key: inner for key, inner in value.items()}
    return {key: put(inner, path[1:], text) if key == path[0] else inner for key, inner in value.items()}


def written(value: object) -> bytes:
    """A document as YAML, each text as it stands, so that what reads it sees the very characters."""
    return json.dumps(value, ensure_ascii=False, indent=0).encode("utf-8", "surrogatepass")


def read(value: object) -> Manifest:
    return manifest.parse(written(value), Path(PATH))
