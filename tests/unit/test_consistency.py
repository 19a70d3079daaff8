"""Each rule between the keys of a manifest, on the few lines that break it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder import consistency, located_yaml
from builder.errors import Problem

# A distribution is in one of these lists, or in the other.
APART = (
    *[("sealed", other) for other in ("forbidden", "constraints", "overrides", "build_tools", "source_builds")],
    *[("sealed", other) for other in ("removed", "prebuilt")],
    *[("forbidden", other) for other in ("overrides", "build_tools", "source_builds", "prebuilt")],
    *[("constraints", other) for other in ("prebuilt", "overrides")],
)
BY_NAME = ("sealed", "forbidden", "constraints", "overrides", "source_builds", "build_tools", "removed", "pip_check")
OF_FETCHED = ("build_env", "imports_from", "patches", "requirements", "submodules", "tests", "unused")


def problems(text: str) -> list[Problem]:
    return list(consistency.problems(located_yaml.parse(text.encode(), Path("x.yaml"))))


def messages(text: str) -> list[str]:
    return [problem.message for problem in problems(text)]


@pytest.mark.parametrize(("first", "second"), APART)
def test_no_distribution_is_in_two_lists(first: str, second: str) -> None:
    text = f"{first}:\n  a-b: x\n{second}:\n  A_b: x\n"
    assert messages(text) == [f"'A_b' is in {second} and in {first} (line 2)"]
    assert messages(text.replace("A_b", "other")) == []


@pytest.mark.parametrize("key", [*BY_NAME, "prebuilt"])
def test_no_distribution_is_written_twice(key: str) -> None:
    assert messages(f"{key}:\n  a-b: x\n  A_b: x\n") == ["'A_b' and 'a-b' (line 2) are the same distribution"]


@pytest.mark.parametrize("key", OF_FETCHED)
def test_what_is_done_to_a_checkout_wants_a_source_that_is_fetched(key: str) -> None:
    text = f"sealed:\n  v: x\nsources:\n  v:\n    recipe: RECIPE\n    distribution: v\n    {key}: {{}}\n"
    assert messages(text.replace("RECIPE", "shipped")) == [f"{key} wants a source that the image installs"]
    assert f"{key} wants" not in " ".join(messages(text.replace("RECIPE", "wheel")))


def test_a_shipped_source_without_a_distribution_is_the_models_fault_alone() -> None:
    assert messages("sources:\n  v:\n    recipe: shipped\n") == []


def test_whoever_names_no_source_is_told_which_there_are() -> None:
    text = "sources:\n  vime:\n    imports_from: [NAMED]\n  vllm: {}\n"
    assert [problem.hint for problem in problems(text.replace("NAMED", "vlm"))] == ["did you mean 'vllm'?"]
    assert [problem.hint for problem in problems(text.replace("NAMED", "other"))] == ["known are vime, vllm"]


def test_a_name_in_a_tag_is_small_and_has_no_plus() -> None:
    assert consistency.in_tag("ROCm7+x") == "rocm7_x"
