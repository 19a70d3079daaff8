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
    for own in range(1, LARGEST + 1)  # 20 GPUs an engine on nodes of 8: vime's arithmetic says 10 on each
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
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree that the patch was applied to, and what its module imports."""
    made = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "standins/sources/vime", made, dirs_exist_ok=True)
    assert patches.judge(made, PATCH).kind == "applies", (
        "without an offset: the stand-in has the lines where vime has them"
    )
    (made / "vllm/utils").mkdir(parents=True)
    (made / "vllm/utils/system_utils.py").write_text("kill_process_tree = None\n")
    return made


@pytest.fixture(scope="module")
def function(tree: Path) -> str:
    module = ast.parse((tree / FILE).read_text())
    (found,) = (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "_engine_mask")
    return ast.unparse(found)


def lay_torch(folder: Path, version: str | None) -> None:
    if version is not None:
        (folder / "torch").mkdir()
        (folder / "torch/__init__.py").touch()
        (folder / "torch/version.py").write_text(version)


def masks(function: str, folder: Path, torch: str | None, cases: list[tuple[int, int, int]]) -> list[str]:
    """What a process with that torch (its version.py; None: without any) gives for each case."""
    lay_torch(folder, torch)
    command = [sys.executable, "-c", PROGRAM.format(function=function)]
    environment = {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, input=json.dumps(cases), env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_on_hip_the_whole_node_is_seen_own_gpus_first(function: str, tmp_path: Path) -> None:
    for (base, own, node), mask in zip(CASES, masks(function, tmp_path, "hip = '7.14'", CASES), strict=True):
        seen = [int(gpu) for gpu in mask.split(",")]
        assert sorted(seen) == list(range(node)), "a permutation of the node's ordinals"
        assert seen[:own] == [(base + number) % node for number in range(min(own, node))]
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


def prove(tree: Path, folder: Path, torch: str) -> subprocess.CompletedProcess[str]:
    """The program that a check of the image runs."""
    lay_torch(folder, torch)
    command = [sys.executable, "-B", str(PATCH.with_suffix(".py"))]
    return subprocess.run(
        command, env={"PYTHONPATH": f"{tree}:{folder}"}, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("torch", ["hip = '7.14'", "hip = None"], ids=["HIP", "CUDA"])
def test_the_proof_holds_for_what_was_patched(tree: Path, tmp_path: Path, torch: str) -> None:
    done = prove(tree, tmp_path, torch)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_proof_refuses_a_vime_without_the_patch(tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    shutil.copy(ROOT / "standins/sources/vime" / FILE, tmp_path / "tree" / FILE)
    done = prove(tmp_path / "tree", tmp_path, "hip = '7.14'")
    assert done.returncode == 1
    assert done.stderr == "of 2 GPUs an engine with 1 from 1 on has HIP_VISIBLE_DEVICES=1, not 1,0\n"


def test_the_proof_refuses_a_mask_that_does_not_reach_the_engine(tree: Path, tmp_path: Path) -> None:
    """As after a merge that kept the function, and lost the lines that call it."""
    shutil.copytree(tree, tmp_path / "tree")
    engine = tmp_path / "tree" / FILE
    call = '_engine_mask(server_args_dict["_visible_devices"], args)'
    assert call in engine.read_text()
    engine.write_text(engine.read_text().replace(call, 'server_args_dict["_visible_devices"]'))
    assert prove(tmp_path / "tree", tmp_path, "hip = '7.14'").returncode == 1


def test_the_image_carries_the_patch_and_its_proof() -> None:
    written = manifest.load(REAL)
    assert PATCH.relative_to(ROOT).as_posix() in [patch.path for patch in written.sources["vime"].patches]
    assert PATCH.with_suffix(".py").is_file()
