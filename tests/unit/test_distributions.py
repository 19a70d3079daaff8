"""What is read without packaging is what packaging reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder import distributions

names = st.text("aB1-_.*", max_size=8)


@given(st.from_regex(distributions.CANONICAL_VERSION, fullmatch=True))
def test_a_version_that_is_read_at_a_glance_is_one(text: str) -> None:
    Version(text)


@given(st.from_regex(distributions.PLAIN_SPECIFIER, fullmatch=True))
def test_a_specifier_that_is_read_at_a_glance_is_one(text: str) -> None:
    assert len(SpecifierSet(text)) == 1


@given(names)
def test_names_are_compared_as_packaging_compares_them(name: str) -> None:
    assert distributions.canonical(name) == canonicalize_name(name)


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("nvidia-*", "nvidia_cublas", True),
        ("nvidia-*", "nvidia", False),
        ("Torch", "torch", True),
        ("torch", "torchvision", False),
        ("torch", "*", False),
        ("*", "torch", True),
        ("cuda-*-x", "cuda.a-x", True),
    ],
)
def test_a_pattern_covers_the_names_of_its_form(pattern: str, name: str, covered: bool) -> None:  # noqa: FBT001
    assert distributions.covers(pattern, name) is covered


@pytest.mark.parametrize("text", ["1!2.0", "v1.2", "1.0-1", "2.9.1+rocm7.2.0.lw", "1.0.RC1", "7.14.0a20260608"])
def test_a_version_in_any_spelling_is_one(text: str) -> None:
    assert distributions.is_version(text)


@pytest.mark.parametrize("text", ["", "latest", "1..2", "1.0+", "==1"])
def test_what_packaging_refuses_is_no_version(text: str) -> None:
    assert not distributions.is_version(text)


@pytest.mark.parametrize("text", ["", "1.2", "==", "=>1"])
def test_what_says_no_versions_is_no_specifier(text: str) -> None:
    assert not distributions.is_specifier(text)
