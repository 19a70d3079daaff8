"""What earlier builds took, from one build of an image to its next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builder import build, facts, manifest, proof, registry
from builder.build import Order
from builder.report import Report, Step
from builder.trace import Event

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
ORDER = Order(
    manifest=MANIFEST,
    facts=facts.of(MANIFEST, ROOT),
    gpu_targets=("gfx942",),
    tag="vime:rocm7.14-gfx942",
    arguments={},
)


def written(root: Path, *steps: Step, image_id: str = "sha256:1") -> dict[str, float]:
    """What is known after a build of these steps."""
    report = Report(
        image="rocm7.14", image_id=image_id, tag=None, gpu_targets=(), pins="", arguments={}, checks=(), steps=steps
    )
    build.write_report(root, ORDER, report)
    return build.earlier_seconds(root, ORDER.tag)


def test_a_build_from_the_cache_does_not_forget_what_its_steps_take(tmp_path: Path) -> None:
    written(tmp_path, Step(name="A", cached=False, seconds=10.0), Step(name="B", cached=False, seconds=20.0))
    known = written(tmp_path, Step(name="A", cached=True, seconds=0.0), Step(name="B", cached=False, seconds=25.0))
    assert known == {"A": 10.0, "B": 25.0}


def test_a_build_that_failed_forgets_no_time_and_proves_nothing(tmp_path: Path) -> None:
    written(tmp_path, Step(name="A", cached=False, seconds=10.0), Step(name="B", cached=False, seconds=20.0))
    broken = Step(name="A", cached=False, seconds=1.0, failed=True)
    assert written(tmp_path, broken, image_id="") == {"A": 10.0, "B": 20.0}
    assert len(list((tmp_path / "build" / "proofs").iterdir())) == 1


def test_what_a_verification_came_to_is_kept_by_the_image_s_id(tmp_path: Path) -> None:
    written(tmp_path)
    kept = proof.of(tmp_path, "sha256:1")
    assert kept is not None
    assert (kept.image, kept.passed) == ("rocm7.14", False)
    assert proof.of(tmp_path, "sha256:2") is None


def test_a_step_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    written(tmp_path, Step(name="A", cached=False, seconds=10.0))
    assert written(tmp_path, Step(name="B", cached=False, seconds=5.0)) == {"B": 5.0}


def test_a_report_of_before_is_enough(tmp_path: Path) -> None:
    path = build.report_path(tmp_path, ORDER.tag)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"steps": [{"name": "A", "cached": False, "seconds": 3}]}))
    assert build.earlier_seconds(tmp_path, ORDER.tag) == {"A": 3.0}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"A": "x"}', '{"A": null}'])
def test_timings_that_cannot_be_read_are_none(tmp_path: Path, text: str) -> None:
    path = build.report_path(tmp_path, ORDER.tag).with_name("timings.json")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert build.earlier_seconds(tmp_path, ORDER.tag) == {}


@pytest.mark.parametrize(
    ("said", "event"),
    [
        (
            {"status": "Downloading", "progressDetail": {"current": 5, "total": 10}, "id": "a1"},
            Event("a1", "Downloading", "pull", current=5, size=10),
        ),
        ({"status": "Pulling fs layer", "progressDetail": {}, "id": "a1"}, Event("a1", "Pulling fs layer", "pull")),
        ({"status": "Pulling from rocm/primus", "id": "v1"}, Event("v1", "Pulling from rocm/primus", "pull")),
        (
            {"status": "Extracting", "progressDetail": {"current": 3, "units": "s"}, "id": "a1"},
            Event("a1", "Extracting", "pull"),
        ),
    ],
)
def test_the_engine_s_words_about_a_layer_are_an_event(said: dict[str, object], event: Event) -> None:
    assert registry.layer(said, "pull") == event


def test_a_mark_to_run_anew_is_kept_until_every_step_ran_anew(tmp_path: Path) -> None:
    assert build.anew(tmp_path, ORDER.tag) == {}
    build.mark_anew(tmp_path, ORDER, "BUILD_VLLM")
    first = build.anew(tmp_path, ORDER.tag)
    build.mark_anew(tmp_path, ORDER, "VERIFY")
    assert {**build.anew(tmp_path, ORDER.tag), "VERIFY": ""} == {**first, "VERIFY": ""}
    build.mark_anew(tmp_path, ORDER, "BUILD_VLLM")
    assert build.anew(tmp_path, ORDER.tag)["BUILD_VLLM"] != first["BUILD_VLLM"]
    build.forget_anew(tmp_path, ORDER.tag)
    assert build.anew(tmp_path, ORDER.tag) == {}


def test_whoever_empties_the_caches_is_told_what_it_costs(tmp_path: Path) -> None:
    (first, second) = build.remarks(tmp_path, replace(ORDER, no_cache=True))
    assert first == "--no-cache runs every step anew and empties the compiler's cache and pip's"
    assert "--refresh STEP" in second
    written(tmp_path, Step(name="BUILD_VLLM", cached=False, seconds=3725.0))
    told = next(build.remarks(tmp_path, replace(ORDER, no_cache=True)))
    assert told.endswith("; they took 1:02:05 h when they last ran")
