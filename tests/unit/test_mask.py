"""The mask that an engine is launched with, as images/patches/vime/engine-mask.patch makes it: every case up to 16."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import REAL, ROOT

from builder import manifest, patches

PATCH = ROOT / "images/patches/vime/engine-mask.patch"
FILE = "vime/backends/vllm_utils/vllm_engine.py"
LARGEST = 16
CASES = [
    (base, own, node)
    for node in range(1, LARGEST + 1)
    for own in range(1, node + 1)
    for base in range(LARGEST + 1)  # an explicit base may lie beyond the node
]
PROGRAM = """
import json, sys
from types import SimpleNamespace
{function}
cases = json.load(sys.stdin)
print(json.dumps([_engine_mask(",".join(str(base + i) for i in range(own)), SimpleNamespace(num_gpus_per_node=node))
                  for base, own, node in cases]))
"""


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The function, out of a tree that the patch was applied to."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "standins/sources/vime", tree, dirs_exist_ok=True)
    assert patches.judge(tree, PATCH).kind == "applies", (
        "without an offset: the stand-in has the lines where vime has them"
    )
    module = ast.parse((tree / FILE).read_text())
    (found,) = (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "_engine_mask")
    return ast.unparse(found)


def masks(function: str, folder: Path, torch: str | None, cases: list[tuple[int, int, int]]) -> list[str]:
    """What a process with that torch (its version.py; None: without any) gives for each case."""
    if torch is not None:
        (folder / "torch").mkdir()
        (folder / "torch/__init__.py").touch()
        (folder / "torch/version.py").write_text(torch)
    command = [sys.executable, "-c", PROGRAM.format(function=function)]
    environment = {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, input=json.dumps(cases), env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_on_hip_the_whole_node_is_seen_own_gpus_first(function: str, tmp_path: Path) -> None:
    for (base, own, node), mask in zip(CASES, masks(function, tmp_path, "hip = '7.14'", CASES), strict=True):
        seen = [int(gpu) for gpu in mask.split(",")]
        assert sorted(seen) == list(range(node)), "a permutation of the node's ordinals"
        assert seen[:own] == [(base + number) % node for number in range(own)]
        assert seen[own:] == sorted(seen[own:])


@pytest.mark.parametrize("torch", ["hip = None", "cuda = '13.0'", None], ids=["CUDA", "no such field", "no torch"])
def test_elsewhere_the_string_is_what_it_was(function: str, tmp_path: Path, torch: str | None) -> None:
    asked = [",".join(str(base + number) for number in range(own)) for base, own, _ in CASES]
    assert masks(function, tmp_path, torch, CASES) == asked


@pytest.mark.parametrize(
    ("case", "mask"),
    [((0, 2, 2), "0,1"), ((1, 1, 2), "1,0"), ((3, 1, 8), "3,0,1,2,4,5,6,7"), ((6, 3, 8), "6,7,0,1,2,3,4,5")],
)
def test_the_examples_of_the_report(function: str, tmp_path: Path, case: tuple[int, int, int], mask: str) -> None:
    assert masks(function, tmp_path, "hip = '7.14'", [case]) == [mask]


def test_a_mask_that_was_widened_already_stays(function: str, tmp_path: Path) -> None:
    """Should upstream do the same one day, nothing is done twice."""
    assert masks(function, tmp_path, "hip = '7.14'", [(3, 8, 8)]) == ["3,4,5,6,7,0,1,2"]


def test_the_image_carries_the_patch_and_its_proof() -> None:
    written = manifest.load(REAL)
    assert PATCH.relative_to(ROOT).as_posix() in [patch.path for patch in written.sources["vime"].patches]
    assert PATCH.with_suffix(".py").is_file()
