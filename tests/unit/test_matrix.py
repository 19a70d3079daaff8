"""What there is to build, for machines that build it; and what of it has changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from copies import Project, copied
from manifests import GOOD, IMAGES, REAL, ROOT, changed, facts_of

from builder import build, errors, manifest, matrix
from builder.build import Order
from builder.cli import main
from builder.report import Report, Step

UNKNOWN = next(path for path in GOOD if path.stem == "unknown")


def orders(*paths: Path) -> list[Order]:
    written = [manifest.load(path) for path in paths]
    return matrix.orders((one, facts_of(one)) for one in written)


EVERY = orders(REAL, *GOOD)


def scalars(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for item in value.values():
            yield from scalars(item)
    elif isinstance(value, list):
        for item in value:
            yield from scalars(item)
    else:
        yield value


# Entries


def test_each_image_has_an_entry_for_each_of_its_targets() -> None:
    found = [(entry["image"], entry["gpu_target"]) for entry in map(matrix.entry, orders(REAL))]
    written = manifest.load(REAL)
    assert found == [(written.name, target) for target in written.gpu_targets]


def test_an_image_with_a_pin_that_nobody_has_established_cannot_be_built_and_has_none() -> None:
    assert orders(UNKNOWN) == []


def test_every_scalar_is_a_text_so_that_no_reader_makes_a_number_of_it() -> None:
    for form in (matrix.as_json, matrix.github):
        assert {type(scalar) for scalar in scalars(json.loads(form(EVERY)))} == {str}


def test_an_entry_says_what_its_machine_must_have_as_the_manifest_declares_it() -> None:
    needs = "needs:\n  disk_gb: 7\n  minutes: 10\n\nsealed:"
    small = changed(GOOD[0], ("sealed:", needs))
    (entry,) = map(matrix.entry, matrix.orders([(small, facts_of(small))]))
    assert {need: entry[need] for need in matrix.NEEDS} == {"disk_gb": "7", "memory_gb": "unknown", "minutes": "10"}


def test_an_entry_has_both_tags_and_the_arguments_of_its_build() -> None:
    first, second = orders(REAL)
    assert matrix.entry(first)["tags"] == [first.tag, first.fixed_tag]
    assert matrix.entry(first)["arguments"] == {}
    assert matrix.entry(second)["arguments"] == {"GPU_TARGETS": second.gpu_targets[0]}


# Formats


def test_what_github_takes_as_a_matrix_is_one_line() -> None:
    text = matrix.github(EVERY)
    assert text.count("\n") == 1
    assert json.loads(text) == {"include": json.loads(matrix.as_json(EVERY))}


def test_buildkite_gets_a_step_for_each_entry_in_json_that_is_yaml_too() -> None:
    text = matrix.buildkite(EVERY)
    pipeline = yaml.safe_load(text)
    assert pipeline == json.loads(text)
    assert "$" not in text, "the agent would put a variable there"
    assert [step["label"] for step in pipeline["steps"]] == [
        f"{order.manifest.name} {order.gpu_targets[0]}" for order in EVERY
    ]
    keys = [step["key"] for step in pipeline["steps"]]
    assert len(set(keys)) == len(keys)


def test_buildkite_s_commands_are_ones_that_the_makefile_and_this_program_take() -> None:
    # A make that runs these tests would give its own flags on.
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    }
    for step in json.loads(matrix.buildkite(orders(REAL)))["steps"]:
        for command in step["commands"]:
            words = ["bash", "-c", f"{command} --dry-run --assume-old=engine --assume-old=.venv/runtime"]
            done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
            *_, name, given = done.stdout.splitlines()[-1].partition("-m builder ")
            name, *arguments = given.split()
            main.commands[name].make_context(name, arguments)


def test_nothing_to_build_is_a_pipeline_too() -> None:
    (step,) = json.loads(matrix.buildkite([]))["steps"]
    assert (step["label"], step["command"]) == ("no image to build", "true")


def test_the_name_of_a_bake_target_has_only_letters_digits_and_dashes_and_is_one_image_s_own(tmp_path: Path) -> None:
    names = ("x.y", "x+y")
    for name in names:
        shutil.copy(GOOD[0], tmp_path / f"{name}.yaml")
    targets = json.loads(matrix.bake(orders(*(tmp_path / f"{name}.yaml" for name in names))))["target"]
    assert list(targets) == ["x-y-gfx942", "x_y-gfx942"]


# What has changed


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two images, committed."""
    project = copied(tmp_path)
    shutil.copy(GOOD[0], project.root / "images")
    (project.root / "README.md").write_text("Read me.\n", "utf-8")
    assert project.run("render").returncode == 0
    git(project, "init", "--quiet")
    commit(project)
    return project


def git(project: Project, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words], cwd=project.root, check=True)


def commit(project: Project) -> None:
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "x")


def since(project: Project, reference: str) -> set[str]:
    done = project.run("matrix", "--changed-since", reference)
    assert done.returncode == 0, done.stderr
    return {entry["image"] for entry in json.loads(done.stdout)}


def test_a_comment_wherever_it_stands_and_a_readme_build_nothing(project: Project) -> None:
    project.edit("README.md", "Read", "Do read")
    project.edit("images/small.yaml", "summary:", "# A comment.\nsummary:")
    project.edit("templates/base.j2", "# One target or several", "{# A remark. #}\n# Some targets")
    project.edit("images/rocm7.14.yaml", "disk_gb: ", "disk_gb: 1")
    assert project.run("render").returncode == 0
    assert since(project, "HEAD") == set()
    commit(project)
    assert since(project, "HEAD~1") == set()


def test_another_value_builds_the_images_that_have_it(project: Project) -> None:
    project.edit("images/small.yaml", "workdir: /opt/vllm", "workdir: /opt/other")
    assert since(project, "HEAD") == {"small"}
    commit(project)
    assert since(project, "HEAD~1") == {"small"}
    assert since(project, "HEAD") == {"small"}, "what was committed then was not rendered"
    project.run("render")
    commit(project)
    assert since(project, "HEAD") == set()


def test_another_template_builds_every_image(project: Project) -> None:
    project.edit("templates/verification.j2", "export HOME=/tmp", "export HOME=/tmp LANG=C")
    assert since(project, "HEAD") == {order.manifest.name for order in orders(*IMAGES)} | {"small"}


def test_a_new_image_is_built(project: Project) -> None:
    shutil.copy(project.root / "images/small.yaml", project.root / "images/other.yaml")
    assert since(project, "HEAD") == {"other"}


@pytest.mark.parametrize("reference", ["nowhere", "--all", ""])
def test_a_revision_that_git_does_not_know_is_said_with_what_may_be_missing(project: Project, reference: str) -> None:
    told = project.refusal(errors.UsageError, "matrix", "--changed-since", reference)
    assert f"error: git knows no revision {reference!r} here\n    hint: " in told


def test_an_image_that_is_left_out_is_named(project: Project) -> None:
    shutil.copy(UNKNOWN, project.root / "images")
    (project.root / "images/bases/unknown.yaml").write_text(
        (ROOT / "tests/manifests/images/bases/unknown.yaml").read_text("utf-8"), "utf-8"
    )
    done = project.run("matrix")
    assert "unknown is left out: base.digest is unknown\n" in done.stderr
    assert "unknown" not in {entry["image"] for entry in json.loads(done.stdout)}


def test_one_of_each_compile_is_listed_first_the_shortest_of_them_first(tmp_path: Path) -> None:
    """By what its steps took last, or else by what is declared; what nobody knows comes last."""
    written = manifest.load(REAL)

    def order(name: str, target: str, minutes: str | None) -> Order:
        with_needs = written.model_copy(update={"needs": {"minutes": minutes} if minutes else {}})
        (found,) = matrix.orders([(with_needs.model_copy(update={"gpu_targets": (target,)}), facts_of(written))])
        return replace(found, tag=f"vime:{name}")

    found = [
        order("unknown", "gfx942", None),
        order("long", "gfx942", "30"),
        order("short", "gfx942", "10"),
        order("measured", "gfx950", "90"),
    ]
    steps = (Step(name="A", cached=False, seconds=1200.0),)
    report = Report(image="", image_id="", tag=None, gpu_targets=(), pins="", arguments={}, checks=(), steps=steps)
    build.write_report(tmp_path, found[3], report)
    listed = [one.tag.removeprefix("vime:") for one in matrix.in_turn(found, tmp_path)]
    assert listed == ["short", "measured", "long", "unknown"]
