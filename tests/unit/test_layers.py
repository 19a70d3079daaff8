"""What no run needs, by layer; the layers of a real rehearsal are in tests/engine."""

from __future__ import annotations

import pytest

from builder import layers
from builder.layers import Layer


def layer(step: str, *files: str, gone: tuple[str, ...] = (), is_ours: bool = True) -> Layer:
    return Layer(step=step, is_ours=is_ours, files=dict.fromkeys(files, 1000), gone=frozenset(gone))


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("root/.cache/pip/wheel", "a cache"),
        ("tmp/list.txt", "temporary files"),
        ("var/lib/apt/lists/a", "apt's lists"),
        ("var/log/dpkg.log", "a log"),
        ("opt/vllm/build/temp.linux/a", "a build tree"),
        ("opt/vllm/CMakeFiles/a", "a build tree"),
        ("opt/vllm/.ninja_log", "a build tree"),
        ("opt/vime/.git/hooks/update.sample", "git's samples of hooks"),
    ],
)
def test_a_leftover_is_named_with_its_step_bytes_path_and_remedy(path: str, what: str) -> None:
    (found,) = layers.waste([layer("STEP", path, "usr/lib/a.so")])
    assert str(found).startswith(f"STEP: {what}, 1.0 kB: /{path}; ")


def test_what_a_later_step_removes_still_weighs_in_its_layer() -> None:
    found = layers.waste([layer("ONE", "root/.cache/a"), layer("TWO", gone=("root/.cache",))])
    assert [(each.step, each.what) for each in found] == [("ONE", "a cache"), ("ONE", layers.REPLACED)]


@pytest.mark.parametrize("gone", ["opt/a", "opt/a/b", "opt/a/"])
def test_a_path_is_gone_with_its_folder(gone: str) -> None:
    assert layers.waste([layer("ONE", "opt/a/b"), layer("TWO", gone=(gone,))])[0].paths == {"opt/a/b": 1000}


def test_what_the_base_or_a_wheel_has_brought_is_no_leftover_of_ours() -> None:
    wheel = layer("ONE", "opt/venv/lib/python3.12/site-packages/x/CMakeFiles/a")
    assert layers.waste([layer("base", "tmp/a", is_ours=False), wheel]) == []
