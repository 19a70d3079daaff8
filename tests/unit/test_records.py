"""Records of an image that are none of ours: each is refused by whoever reads it, in words that name the image."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from manifests import REAL, facts_of

from builder import explain, lists, locking, manifest, project, records, sbom, side
from builder.errors import ForgedRecordError
from builder.made import Made

MANIFEST = manifest.load(REAL)
FACTS = facts_of(MANIFEST)
TAG = "vime:forged-gfx942"
STEP = "VLLM_REQUIREMENTS"
GOOD: dict[str, Any] = {
    "manifest.json": json.loads(lists.text(lists.content(MANIFEST))),
    "policy.json": {"steps": [STEP]},
    "verification.json": {"checks": [{"name": "torch", "outcome": "passed"}]},
    "seal.json": {"distributions": {"torch": {"version": "2.12.0", "step": "base"}}},
    f"plans/{STEP}.json": {"distributions": [{"name": "numpy", "version": "1.26.4", "sha256": "a" * 64}]},
    "sources/vllm.json": {
        "repository": "https://github.com/vllm-project/vllm",
        "commit": "1" * 40,
        "tag": "v0.29.0",
        "distribution": "vllm",
        "checkout": "/opt/vllm",
        "patches": [{"path": "a.patch", "sha256": "b" * 64}],
    },
}
INSIDE: dict[str, Any] = {
    "python": {"version": "3.12.3", "executable": "/opt/venv/bin/python", "site_packages": "/site"},
    "system": "debian 13",
    "distributions": {"numpy": {"version": "1.26.4", "flavour": None, "requires": ["torch"]}, "torch": {
        "version": "2.12.0", "flavour": "rocm", "requires": []}},
    "device_code": ["gfx942"],
    "rocm_root": "/opt/rocm",
    "tools": ["bash"],
    "pip_check": [],
}  # fmt: skip
NONSENSE = {
    "nothing": b"",
    "half": b'{"a": ',
    "no text": b"\xff\xfe\x00",
    "another encoding": "{}".encode("utf-16"),
    "null": b"null",
    "a list": b"[]",
    "a number": b"7",
    "a text": b'"x"',
    "brackets without end": b"[" * 100_000,
    "braces without end": b'{"a":' * 100_000,
    "half a letter": b'{"a": "\\ud800"}',
    "nothing in it": b"{}",
    "a number without end": b"1" * 100_000,
}


def written(content: dict[str, Any], **others: bytes) -> Made:
    files = {path: json.dumps(value).encode() for path, value in content.items()}
    return Made(
        tag=TAG,
        image_id=f"sha256:{'0' * 64}",
        name=MANIFEST.name,
        pins="as manifest",
        labels={"vime-image.gpu_targets": "gfx942"},
        env={},
        files={f"{lists.HOME}/{path}": value for path, value in {**files, **others}.items()},
        history=(),
    )


def answer(content: bytes) -> dict[str, Any]:
    return records.read(content, records.Inside, f"the answer of {TAG}").model_dump()


def compared(image: Made) -> None:
    """What `diff` reads of an image beside what its Python answers."""
    _ = image.pinned, image.checks, image.record("seal.json", records.Seal), side.tables(image.manifest or {})


READERS: dict[str, Callable[[Made], object]] = {
    "explain": lambda image: explain.explain(image, project.ROOT).text(),
    "sbom": lambda image: sbom.written(image, answer(json.dumps(INSIDE).encode()), "Package: a\n", FACTS),
    "diff": compared,
    "lock": locking.of,
}
READ_BY = {
    "manifest.json": set(READERS),
    "policy.json": {"lock"},
    "verification.json": {"explain", "diff"},
    "seal.json": {"sbom", "diff"},
    f"plans/{STEP}.json": {"explain", "sbom", "lock"},
    "sources/vllm.json": {"explain", "sbom", "diff"},
}


@pytest.mark.parametrize("reader", READERS)
def test_what_we_write_is_read(reader: str) -> None:
    READERS[reader](written(GOOD))


@pytest.mark.parametrize("shape", NONSENSE)
@pytest.mark.parametrize("path", GOOD)
def test_a_record_of_any_other_shape_is_refused_and_the_image_named(path: str, shape: str) -> None:
    forged = written(GOOD, **{path: NONSENSE[shape]})
    for reader in READ_BY[path]:
        with pytest.raises(ForgedRecordError) as caught:
            READERS[reader](forged)
        assert TAG in str(caught.value)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("shape", NONSENSE)
def test_an_answer_of_any_other_shape_is_refused_too(shape: str) -> None:
    with pytest.raises(ForgedRecordError, match=TAG):
        answer(NONSENSE[shape])


def damaged(value: Any) -> Iterator[Any]:
    """A JSON value with one of its parts gone, or of another kind."""
    others: tuple[Any, ...] = (None, 7, 1.5, True, "", "x\ny", [], {}, [[]], {"x": 7}, "x" * 100_000)
    parts = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for part in parts:
        without = copy.deepcopy(value)
        del without[part]
        yield without
        for inner in (*others, *damaged(value[part])):
            changed = copy.deepcopy(value)
            changed[part] = inner
            yield changed


def refusal(read: Callable[[], object]) -> str:
    """How a record is refused, by its image's name; empty where it is read. Any other error ends the test."""
    try:
        read()
    except ForgedRecordError as error:
        return TAG if TAG in str(error) else f"no image named: {error}"
    return ""


@pytest.mark.parametrize("path", [path for path in GOOD if path != "manifest.json"])
def test_a_record_with_any_part_damaged_is_read_or_refused(path: str) -> None:
    images = [written({**GOOD, path: value}) for value in damaged(GOOD[path])]
    said = {refusal(lambda: READERS[reader](image)) for image in images for reader in READ_BY[path]}  # noqa: B023
    assert said == {TAG, ""}


def test_a_carried_manifest_with_any_part_damaged_is_read_or_refused() -> None:
    name, source = next(iter(GOOD["manifest.json"]["sources"].items()))
    small = {key: GOOD["manifest.json"][key] for key in ("schema", "image", "base", "build_tools", "constraints")}
    images = [written({**GOOD, "manifest.json": value}) for value in damaged({**small, "sources": {name: source}})]
    said = {refusal(lambda: READERS[reader](image)) for image in images for reader in ("sbom", "diff", "lock")}  # noqa: B023
    assert said == {TAG, ""}


def test_an_answer_with_any_part_damaged_is_read_or_refused() -> None:
    answers = [json.dumps(value).encode() for value in damaged(INSIDE)]
    said = {refusal(lambda: sbom.written(written(GOOD), answer(text), None, None)) for text in answers}  # noqa: B023
    assert said == {TAG, ""}


@pytest.mark.parametrize(
    ("name", "version"),
    [("numpy", "1\n--index-url=https://example.org"), ("numpy\n", "1"), ("NumPy", "1"), ("", "1"), ("numpy", "")],
)
def test_a_plan_can_write_nothing_into_a_lock_but_its_lines(name: str, version: str) -> None:
    plan = {"distributions": [{"name": name, "version": version}]}
    with pytest.raises(ForgedRecordError, match="is no line of a lock"):
        locking.of(written({**GOOD, f"plans/{STEP}.json": plan}))


@pytest.mark.parametrize("gone", ["policy.json", "manifest.json", f"plans/{STEP}.json"])
def test_an_image_without_all_of_its_plans_locks_nothing(gone: str) -> None:
    with pytest.raises(ForgedRecordError, match=f"what {TAG} carries of its plans is none that we write: no "):
        locking.of(written({path: value for path, value in GOOD.items() if path != gone}))


@pytest.mark.parametrize(
    "status",
    [
        "Package:\nStatus: install ok installed\n",
        "Status: install ok installed\n",
        "Package: a\nStatus: install ok installed\nVersion: 1\n\nPackage: a\nStatus: install ok installed\nVersion: 2\n",
        ":\n:\n\n: installed",
        "Package: \x00\x1b[31m\nStatus: installed installed\nVersion: %%%\nArchitecture: a?b=c&d\n",
    ],
)
def test_a_list_of_packages_of_any_shape_is_read_or_refused(status: str) -> None:
    said: list[str] = []
    assert refusal(lambda: said.append(sbom.written(written(GOOD), INSIDE, status, FACTS))) == ("" if said else TAG)
    assert all(json.loads(text)["bomFormat"] == "CycloneDX" for text in said)
