"""What an image is called, and what it says of itself."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from manifests import EVERY, GOOD, REAL, changed, facts_of, rendered

from builder import dockerfile, manifest, render
from builder.build import Order
from builder.manifest import Manifest

every_manifest = pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)


def order(written: Manifest, *targets: str) -> Order:
    chosen = targets or written.gpu_targets[:1]
    return Order(manifest=written, facts=facts_of(written), gpu_targets=chosen, tag=written.tag(chosen), arguments={})


REAL_ORDER = order(manifest.load(REAL))


def labels_of(text: str) -> dict[str, str]:
    (label,) = [step for step in dockerfile.parse(text) if step.keyword == "LABEL"]
    return dict(word.split("=", 1) for word in shlex.split(label.text))


def carried_by(text: str) -> str:
    (step,) = [step for step in dockerfile.parse(text) if step.name == "MANIFEST_JSON"]
    return "".join(f"{line}\n" for line in step.heredocs[0].body)


# Tags


def test_a_fixed_tag_is_the_moving_one_and_twelve_digits() -> None:
    assert re.fullmatch(r"vime:rocm7\.14-gfx942-[0-9a-f]{12}", REAL_ORDER.fixed_tag or "")


def test_the_same_inputs_have_the_same_fixed_tag_and_comments_are_none() -> None:
    commented = changed(
        REAL, ("summary:", "# Another comment.\nsummary:"), ("gpu_targets:", "# And one.\ngpu_targets:")
    )
    assert order(commented).fixed_tag == REAL_ORDER.fixed_tag


def test_another_value_is_another_fixed_tag() -> None:
    assert order(changed(REAL, ('value: "1"', 'value: "2"'))).fixed_tag != REAL_ORDER.fixed_tag


def test_a_step_that_ran_anew_is_another_fixed_tag() -> None:
    assert replace(REAL_ORDER, anew={"BUILD_VLLM": "1"}).fixed_tag != REAL_ORDER.fixed_tag


def test_each_target_has_digits_of_its_own() -> None:
    tags = [order(REAL_ORDER.manifest, target).fixed_tag or "" for target in REAL_ORDER.manifest.gpu_targets]
    assert len({tag[-12:] for tag in tags}) == len(tags)


@pytest.mark.parametrize("given", [{"arguments": {"BASE_IMAGE": "x:1"}}, {"overrides": {"vime.commit": "1" * 40}}])
def test_an_image_of_other_pins_has_no_fixed_tag(given: dict[str, dict[str, str]]) -> None:
    assert replace(REAL_ORDER, **given).fixed_tag is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "tag"), [("rocm7.14", "rocm7.14"), ("ROCm7.14", "rocm7.14"), ("x+y.1", "x_y.1")])
def test_plus_and_capitals_of_a_name_are_others_in_its_tag(name: str, tag: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.yaml"
    shutil.copy(GOOD[0], path)
    assert manifest.load(path).tag(["gfx942", "gfx950"]) == f"vime:{tag}-gfx942-gfx950"


# Labels


@every_manifest
def test_the_image_carries_its_manifest_and_the_label_is_its_digest(path: Path) -> None:
    text = rendered(path)
    digest = hashlib.sha256(carried_by(text).encode()).hexdigest()
    assert labels_of(text)["vime-image.manifest"] == f"sha256:{digest}"
    carried = json.loads(carried_by(text))
    assert (carried.pop("schema"), carried.pop("image")) == (1, path.stem)
    assert carried == manifest.load(path).model_dump(mode="json", exclude={"needs"}, exclude_defaults=True)


def test_what_a_machine_must_have_is_no_part_of_an_image() -> None:
    assert order(changed(REAL, ("minutes: ", "minutes: 1"))).dockerfile == REAL_ORDER.dockerfile


def templates_digest(folder: Path) -> str:
    written = manifest.load(REAL)
    return labels_of(render.render(written, facts_of(written), folder))["vime-image.templates"]


@pytest.mark.parametrize(
    ("template", "old", "new", "same"),
    [
        ("macros.j2", "{#- file: a file", "{#- file: some file", True),
        ("base.j2", "# One target or several", "# Many targets", True),
        ("base.j2", "/gpu_targets\n", "/gpu_targets \n", False),
    ],
    ids=["comment of a template", "comment of the file", "instruction"],
)
def test_templates_have_a_digest_that_no_comment_changes(
    tmp_path: Path, template: str, old: str, new: str, *, same: bool
) -> None:
    folder = tmp_path / "templates"
    shutil.copytree(render.TEMPLATES, folder)
    text = (folder / template).read_text("utf-8")
    assert old in text
    (folder / template).write_text(text.replace(old, new, 1), "utf-8")
    assert (templates_digest(folder) == templates_digest(render.TEMPLATES)) == same


@every_manifest
def test_labels_say_what_is_known_before_the_build_and_nothing_of_themselves(path: Path) -> None:
    text = rendered(path)
    labels = labels_of(text)
    written = manifest.load(path)
    fetched = [name for name, source in written.sources.items() if f"\nARG {source.commit_argument}=" in text]
    standard = {name for name in labels if name.startswith("org.opencontainers.image.")}
    assert {name.removeprefix("org.opencontainers.image.") for name in standard} == {
        "base.digest",
        "base.name",
        "description",
        "title",
    }
    ours = {f"vime-image.{name}" for name in ("gpu_targets", "image", "manifest", "pins", "templates")}
    assert set(labels) - standard == ours | {f"vime-image.{source}.commit" for source in fetched}
    assert labels["org.opencontainers.image.title"] == written.name
