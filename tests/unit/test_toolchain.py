"""What a tree wants of its own build, held against the manifest: its tools, and the modules that it compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from manifests import REAL, ROOT, SECOND, changed

from builder import facts, manifest, toolchain
from builder.entries import Source
from builder.probes import Fault, Probe, Trees, Untried

MANIFEST = manifest.load(REAL)
FACTS = facts.of(MANIFEST, ROOT)
READ = FACTS.model_copy(update={"tools": ("git",)})  # a base that was read: what it does not name is not there


def tree(folder: Path, **files: str) -> Path:
    """vLLM's, with a pyproject, a setup and a requirement file as far as they are given."""
    names = {
        "project": "pyproject.toml",
        "setup": "setup.py",
        "cmake": "CMakeLists.txt",
        "list": "requirements/rocm.txt",
    }
    for name, text in {"list": "", **files}.items():
        path = folder / names[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def asked(kind: str, folder: Path, written: manifest.Manifest = MANIFEST, known: facts.Facts = FACTS) -> Probe:
    class Here(Trees):
        def of(self, _: Source) -> Path:
            return folder

    trees = Here(written, folder, folder, offline=True)
    return next(probe for probe in toolchain.probes(written, known, trees) if probe.kind == kind)


def fault(probe: Probe) -> Fault:
    with pytest.raises(Fault) as caught:
        probe.ask()
    return caught.value


def project(*needs: str) -> str:
    return f"[build-system]\nrequires = {list(needs)}\n"


def test_a_tree_whose_tools_are_all_there_passes(tmp_path: Path) -> None:
    tree(tmp_path, project=project("setuptools>=77,<81", "cmake>=3.26.1", "torch == 2.13.0"), list="setuptools<80\n")
    assert asked("build_tools", tmp_path, known=READ).ask() == ("3 tools", ())


def test_a_tool_for_another_python_is_not_asked_for_and_one_for_this_is(tmp_path: Path) -> None:
    tree(tmp_path, project=project("setuptools>=99; python_version < '3'"))
    assert asked("build_tools", tmp_path).ask()[0] == "1 tools"
    tree(tmp_path, project=project("setuptools>=99; python_version >= '3'"))
    assert "setuptools>=99" in str(fault(asked("build_tools", tmp_path)))


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"project": project("setuptools<79")}, "pyproject.toml"),
        ({"list": "datasets\nsetuptools<79  # a cap\n"}, "requirements/rocm.txt:2"),
    ],
)
def test_a_build_tool_that_this_commit_does_not_want_is_named_with_the_line_that_says_so(
    tmp_path: Path, files: dict[str, str], place: str
) -> None:
    found = fault(asked("build_tools", tree(tmp_path, **files)))
    assert str(found) == f"{place} wants setuptools<79, build_tools has 79.0.1"
    assert found.hint.startswith("build_tools: ")


def test_a_tool_of_another_platform_is_nobody_s_concern(tmp_path: Path) -> None:
    tree(tmp_path, project=project("setuptools<79; sys_platform == 'win32'", "conan; python_version < '3.9'"))
    assert asked("build_tools", tmp_path, known=READ).ask() == ("2 tools", ())


def test_a_sealed_distribution_builds_in_the_version_that_the_base_has(tmp_path: Path) -> None:
    tree(tmp_path, project=project("torch==1.0"))
    assert asked("build_tools", tmp_path, known=READ).ask()[0] == "1 tools"


def test_what_nobody_has_is_a_fault_where_the_base_was_read_and_a_note_where_it_was_not(tmp_path: Path) -> None:
    tree(tmp_path, project=project("grpcio-tools==1.78.0"))
    assert "which neither the base nor build_tools has" in str(fault(asked("build_tools", tmp_path, known=READ)))
    _, notes = asked("build_tools", tmp_path).ask()
    assert notes == ("the base is taken to have grpcio-tools==1.78.0",)


@pytest.mark.parametrize("text", ["requires = [", "[build-system]\nrequires = 1\n", "build-system = 1\n"])
def test_a_pyproject_that_nobody_can_read_could_not_run(tmp_path: Path, text: str) -> None:
    with pytest.raises(Untried, match=r"pyproject\.toml cannot be read"):
        asked("build_tools", tree(tmp_path, project=text)).ask()


def test_modules_that_the_tree_compiles_pass(tmp_path: Path) -> None:
    names = MANIFEST.sources["vllm"].device_code
    tree(tmp_path, setup=f'CMakeExtension(name="vllm.{names[0]}")', cmake="\n".join(names[1:]))
    assert asked("device_code", tmp_path).ask() == (f"{len(names)} modules", ())


def test_a_module_that_the_tree_calls_otherwise_is_named(tmp_path: Path) -> None:
    written = changed(REAL, ("_moe_C_stable_libtorch,", "_moe_C,"))
    names = MANIFEST.sources["vllm"].device_code
    tree(tmp_path, setup="\n".join(f'CMakeExtension(name="vllm.{name}")' for name in names))
    found = fault(asked("device_code", tmp_path, written))
    assert str(found) == "no _moe_C in setup.py of this commit"
    assert found.hint.startswith("sources.vllm.device_code: ")


def test_a_library_that_is_no_module_is_known_by_its_target(tmp_path: Path) -> None:
    second = manifest.load(SECOND)
    known = facts.of(second, ROOT)
    tree(tmp_path, setup='CMakeExtension(name="transformer_engine")')
    trees = Trees(second, tmp_path, tmp_path, offline=True)
    assert toolchain._modules(second.sources["transformer_engine"], tmp_path) == ("1 modules", ())  # noqa: SLF001
    names = [probe.name for probe in toolchain.probes(second, known, trees)]
    assert "transformer_engine compiles every module that is said to have device code" in names


def test_of_what_the_base_ships_only_its_modules_are_asked_for(tmp_path: Path) -> None:
    second = manifest.load(SECOND)
    trees = Trees(second, tmp_path, tmp_path, offline=True)
    probes = toolchain.probes(second, facts.of(second, ROOT), trees)
    assert [probe.kind for probe in probes if probe.name.startswith("vllm ")] == ["device_code"]
