"""What a manifest says of a tree, held against trees that have it and trees that do not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from manifests import REAL, ROOT, SECOND, changed

from builder import claims, manifest
from builder.manifest import Manifest
from builder.probes import Fault, Trees, Untried

MANIFEST = manifest.load(REAL)
EDITS = (
    ("modules: [torch_memory_saver]", "modules: [torch_memory_savr]"),
    ("megatron.core.datasets.helpers_cpp", "megatron.core.datasets.helpers_cc"),
    ("megatron.core.datasets.helpers_cpp", "megatron.core.data.helpers_cpp"),
)


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """The stand-ins' trees, by the names of their sources."""
    for source in manifest.load(SECOND).sources.values():
        shutil.copytree(ROOT / "standins/sources" / Path(source.checkout).name, tmp_path / source.name)
    return tmp_path


def told(trees: Path, name: str, written: Manifest = MANIFEST) -> str:
    known = {path.name: path for path in trees.iterdir()}
    there = Trees(written, trees, trees, offline=True, known=known)
    (probe,) = [probe for probe in claims.probes(written, there) if probe.name.startswith(f"{name}'s tree")]
    return probe.ask()[0]


def fault(trees: Path, name: str, written: Manifest = MANIFEST) -> tuple[str, str]:
    with pytest.raises(Fault) as caught:
        told(trees, name, written)
    return str(caught.value), caught.value.hint


def test_every_source_of_every_image_has_what_is_said_of_it(trees: Path) -> None:
    for path in (REAL, SECOND):
        written = manifest.load(path)
        for source in written.sources.values():
            assert told(trees, source.name, written) == f"{len(source.modules)} modules"


@pytest.mark.parametrize(("old", "new"), EDITS)
def test_a_module_that_the_tree_does_not_have_is_named(trees: Path, old: str, new: str) -> None:
    written = changed(REAL, (old, new))
    module = new.removeprefix("modules: [").removesuffix("]")
    (name,) = [source.name for source in written.sources.values() if module in source.modules]
    assert fault(trees, name, written) == (
        f"no module {module} in the tree of this commit",
        f"change sources.{name}.modules",
    )


@pytest.mark.parametrize("root", ["src", "python"])
def test_a_module_may_stand_in_a_folder_for_sources(trees: Path, root: str) -> None:
    (trees / "torch_memory_saver" / root).mkdir()
    (trees / "torch_memory_saver/torch_memory_saver").rename(trees / f"torch_memory_saver/{root}/torch_memory_saver")
    (trees / "torch_memory_saver/setup.py").unlink()
    assert told(trees, "torch_memory_saver")


def test_a_module_may_be_one_file(trees: Path) -> None:
    shutil.rmtree(trees / "torch_memory_saver/torch_memory_saver")
    assert (
        "no module"
        in fault(trees, "torch_memory_saver", changed(REAL, ("modules: [torch_memory_saver]", "modules: [single]")))[0]
    )
    (trees / "torch_memory_saver/single.py").touch()
    assert told(trees, "torch_memory_saver", changed(REAL, ("modules: [torch_memory_saver]", "modules: [single]")))


def test_a_compiled_module_may_stand_in_a_build_file_alone(trees: Path) -> None:
    written = changed(REAL, ("modules: [torch_memory_saver]", "modules: [single]"))
    setup = trees / "torch_memory_saver/setup.py"
    setup.write_text(f"# singles, or a single\n{setup.read_text()}")
    assert "no module single" in fault(trees, "torch_memory_saver", written)[0]
    setup.write_text(f"NAMES = ['single']\n{setup.read_text()}")
    assert told(trees, "torch_memory_saver", written)


def test_a_word_in_a_file_too_large_to_be_a_source_is_no_module(trees: Path) -> None:
    place = trees / "megatron/megatron/core/datasets"
    written = changed(REAL, ("datasets.helpers_cpp", "datasets.other_cpp"))
    (place / "weights.bin").write_text("other_cpp " * 200_000)
    assert "no module megatron.core.datasets.other_cpp" in fault(trees, "megatron", written)[0]
    (place / "other.cpp").write_text("PYBIND11_MODULE(other_cpp, m) {}")
    assert told(trees, "megatron", written)
    (place / "other.cpp").write_text("PYBIND11_MODULE(other_cpp2, m) {}")
    assert "no module" in fault(trees, "megatron", written)[0]


def test_another_name_of_the_distribution_is_told_wherever_the_tree_says_it(trees: Path) -> None:
    """The seal asks for it after hours of compiling."""
    written = changed(REAL, ("distribution: megatron-core", "distribution: megatron-lm"))
    expected = "this commit builds megatron-core, not megatron-lm", "change sources.megatron.distribution"
    assert fault(trees, "megatron", written) == expected
    written = changed(REAL, ("distribution: vllm", "distribution: vllm-rocm"))
    assert fault(trees, "vllm", written)[0] == "this commit builds vllm, not vllm-rocm"


def test_another_spelling_of_a_distribution_is_the_same(trees: Path) -> None:
    assert told(trees, "megatron", changed(REAL, ("distribution: megatron-core", "distribution: Megatron_Core")))


@pytest.mark.parametrize(
    "text", ["", "setup(name=NAME)\n", 'setup(\n    name="other",\n)\nadd(\n    name="another",\n)\n']
)
def test_a_tree_that_does_not_say_its_distribution_is_not_judged(trees: Path, text: str) -> None:
    (trees / "vime/setup.py").write_text(text)
    assert told(trees, "vime")
    (trees / "vime/setup.py").unlink()
    assert told(trees, "vime")


def test_a_test_of_the_source_that_is_not_there_is_named(trees: Path) -> None:
    (trees / "vime/tests/utils/test_vllm_config.py").unlink()
    assert fault(trees, "vime") == (
        "no file tests/utils/test_vllm_config.py in the tree of this commit",
        "change sources.vime.tests",
    )


def test_a_variable_that_begins_with_a_source_s_name_is_read_there(trees: Path) -> None:
    written = changed(REAL, ("VLLM_USE_MEGA_AOT_ARTIFACT", "VLLM_USE_NOTHING"))
    expected = "nothing in vllm reads VLLM_USE_NOTHING", "change env.VLLM_USE_NOTHING"
    assert fault(trees, "vllm", written) == expected
    (trees / "vllm/other.py").write_text("VLLM_USE_NOTHING")  # of no package
    assert fault(trees, "vllm", written) == expected
    assert len(fault(trees, "vllm", written)[0].splitlines()) == 1
    (trees / "vllm/vllm/deep").mkdir()
    (trees / "vllm/vllm/deep/envs.py").write_text("VLLM_USE_NOTHING")
    assert told(trees, "vllm", written)


def test_of_a_package_that_is_not_there_no_more_is_said(trees: Path) -> None:
    shutil.rmtree(trees / "vllm/vllm")
    (trees / "vllm/setup.py").unlink()
    assert fault(trees, "vllm")[0] == "no module vllm in the tree of this commit"


def test_every_fault_of_a_tree_is_told_with_the_keys_to_change(trees: Path) -> None:
    (trees / "vime/tests/utils/test_vllm_config.py").unlink()
    shutil.rmtree(trees / "vime/vime_plugins")
    detail, hint = fault(trees, "vime")
    assert len(detail.splitlines()) == 2
    assert hint == "change sources.vime.modules or sources.vime.tests"


def test_a_project_file_that_cannot_be_read_is_no_verdict(trees: Path) -> None:
    (trees / "megatron/pyproject.toml").write_text("[project\n")
    with pytest.raises(Untried, match=r"pyproject\.toml cannot be read"):
        told(trees, "megatron")
