"""What an image says of how it was made, and what has changed since; on images whose steps did nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import hollow
import pytest
from click.testing import CliRunner
from conftest import FACTS, MANIFEST

from builder import cli, drift, explain, made, project
from builder.engine import Engine
from builder.errors import UsageError
from builder.lists import HOME
from builder.made import Made


@pytest.fixture(scope="module")
def tag(engine: Engine) -> Iterator[str]:
    found = hollow.image(engine)
    yield found
    engine.remove_image(found)


@pytest.fixture(scope="module")
def image(engine: Engine, tag: str) -> Made:
    return made.read(engine, tag)


def test_what_was_made_of_this_checkout_is_identical(image: Made) -> None:
    assert list(drift.of(image, MANIFEST, FACTS)) == []
    assert explain.explain(image, project.ROOT).checkout == "identical"


def test_it_names_manifest_pins_plans_and_checks(image: Made, tag: str, tmp_path: Path) -> None:
    explanation = explain.explain(image, tmp_path)
    text = explanation.text()
    assert f"made from images/{MANIFEST.name}.yaml for gfx942 (pins: overridden)" in text
    assert f"  vllm.commit: {MANIFEST.sources['vllm'].commit}\n" in text
    assert f"(its manifest has {MANIFEST.base.image})" in text, "the base is not the manifest's"
    assert set(explanation.overridden) == {"base.image", "base.digest"}
    assert "  VLLM_REQUIREMENTS: 1 distributions\n" in text
    assert "in its build: 2 passed, 0 failed, 1 could not run\n    could not run: vime imports\n" in text
    assert f"by this checkout: none; python -m builder verify {tag}" in text
    assert json.loads(explanation.json())["plans"] == {"VLLM_REQUIREMENTS": ["numpy 1.26.4"]}


def test_a_key_of_the_manifest_that_changed_is_named_with_both_values(image: Made) -> None:
    commit = MANIFEST.sources["vime"].commit
    found = list(drift.of(image, hollow.edited((commit, "1" * 40)), FACTS))
    assert f"manifest: sources.vime.commit: {commit} -> {'1' * 40}" in found


def test_a_step_and_a_file_that_changed_are_named(image: Made) -> None:
    found = list(drift.of(image, hollow.edited(("recipe: editable", "recipe: editable\n    tag: v1")), FACTS))
    assert "step FETCH_VIME: the image has no such script" in found
    assert f"file {HOME}/checks.json: another content" in found
    assert any(line.startswith("step that is rendered no more: ") for line in found)


def test_a_manifest_that_was_exchanged_in_the_image_does_not_have_the_digest_of_its_label(image: Made) -> None:
    path = f"{HOME}/manifest.json"
    exchanged = replace(image, files={**image.files, path: image.files[path] + b"\n"})
    (line,) = drift.of(exchanged, MANIFEST, FACTS)
    assert line == "manifest: what the image carries has another digest than its label says"


def test_an_image_whose_manifest_is_gone_is_explained_and_the_rest_is_unknown(
    image: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images").mkdir()
    monkeypatch.setattr(project, "ROOT", tmp_path)
    explanation = explain.explain(image, tmp_path)
    assert explanation.checkout.startswith("unknown: ")
    assert f"vllm.commit: {MANIFEST.sources['vllm'].commit}" in explanation.text()


def test_results_that_are_not_there_are_unknown_and_not_good(engine: Engine) -> None:
    tag = hollow.image(engine, files={})
    try:
        explanation = explain.explain(made.read(engine, tag), project.ROOT)
        assert explanation.in_build is None
        assert "in its build: unknown\n" in explanation.text()
        assert "\n  none\n" in explanation.text()
    finally:
        engine.remove_image(tag)


def test_an_image_that_is_none_of_ours_is_refused(engine: Engine, tiny: str) -> None:
    with pytest.raises(UsageError, match="is none of our images"):
        made.read(engine, tiny)
    with pytest.raises(UsageError, match="the engine has no image 'nothing:here'"):
        made.read(engine, "nothing:here")


def test_the_command_prints_it(tag: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    done = CliRunner().invoke(cli.main, ["explain", tag])
    assert done.exit_code == 0, done.output
    assert "what this checkout renders to: identical\n" in done.output
    assert json.loads(CliRunner().invoke(cli.main, ["explain", tag, "--json"]).output)["checkout"] == "identical"
