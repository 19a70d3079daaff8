"""The seal: what it records, what it refuses of a base, and each kind of breach by its name."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import wheels
from wheels import BASE, ROCM, SEALED, Image, Wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Make = Callable[[Iterable[Wheel]], Image]

TORCH = BASE[0]
OTHERS = BASE[1:]


@pytest.fixture(scope="session")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.pip_files(tmp_path_factory.mktemp("pip"), "bundled")


@pytest.fixture
def make(tmp_path: Path, pip: Path) -> Make:
    return lambda contents: wheels.image(tmp_path, pip, contents)


@pytest.fixture
def sealed(make: Make) -> Image:
    image = make(BASE)
    done = image.run("seal", "create", *SEALED)
    assert done.returncode == 0, done.stderr
    return image


def refusal(image: Image, *arguments: str) -> str:
    """What the seal says when it refuses; never a traceback."""
    done = image.run("seal", *arguments)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def with_torch(files: dict[str, str]) -> list[Wheel]:
    return [replace(TORCH, files={**TORCH.files, **files}), *OTHERS]


def test_records_version_record_and_files_of_each(sealed: Image) -> None:
    seal = sealed.read("seal.json")
    assert seal["schema"] == 1
    assert list(seal["distributions"]) == [
        "amd-aiter",
        "rocm-sdk-core",
        "rocm-sdk-devel",
        "torch",
        "torchvision",
        "triton",
    ]
    torch = seal["distributions"]["torch"]
    record = sealed.site / f"torch-{ROCM}.dist-info" / "RECORD"
    version = sealed.site / "torch" / "version.py"
    assert torch["version"] == ROCM
    assert torch["step"] == "base"
    assert torch["record_sha256"] == hashlib.sha256(record.read_bytes()).hexdigest()
    assert [str(version), version.stat().st_size, int(version.stat().st_mtime)] in torch["files"]


def test_constraints_hold_name_and_full_version_and_nothing_else(sealed: Image) -> None:
    lines = (sealed.root / "constraints.txt").read_text().splitlines()
    assert f"torch=={ROCM}" in lines
    assert lines == [
        "amd-aiter==0.1.12",
        "rocm-sdk-core==7.14.0",
        "rocm-sdk-devel==7.14.0",
        f"torch=={ROCM}",
        "torchvision==0.27.0+rocm7.14.0a20260608",
        "triton==3.7.0+gitb4e20bbe",
    ]


def test_an_editable_distribution_is_a_name_and_a_version_in_the_constraints(sealed: Image, tmp_path: Path) -> None:
    editable = Wheel("vime", "0.1+local", (), {"__editable__.vime-0.1.pth": f"{tmp_path}\n"})
    editable.unpack(sealed.site)
    assert sealed.run("seal", "add", "VIME", "vime").returncode == 0
    assert (sealed.root / "constraints.txt").read_text().splitlines()[-1] == "vime==0.1+local"


def test_lines_of_pip_check_are_recorded_as_facts(sealed: Image) -> None:
    lines = sealed.read("seal.json")["pip_check"]
    assert any("torchvision" in line and "pillow" in line for line in lines)


def test_an_untouched_base_holds(sealed: Image) -> None:
    done = sealed.run("seal", "check", "VLLM_REQUIREMENTS")
    assert (done.returncode, done.stderr) == (0, "")


def test_compiled_files_are_nobodys_change(make: Make) -> None:
    image = make([replace(TORCH, files={**TORCH.files, "torch/__pycache__/a.cpython-311.pyc": "a"}), *OTHERS])
    image.run("seal", "create", *SEALED)
    (image.site / "torch/__pycache__/a.cpython-311.pyc").unlink()
    assert image.run("seal", "check", "S").returncode == 0


def test_a_fraction_of_a_second_is_no_change(sealed: Image) -> None:
    file = sealed.site / "torch" / "version.py"
    seconds = int(file.stat().st_mtime)
    os.utime(file, ns=(seconds * 10**9 + 1, seconds * 10**9 + 1))
    assert sealed.run("seal", "check", "S").returncode == 0


def test_a_module_name_is_answered_with_its_distribution(make: Make) -> None:
    told = refusal(make(BASE), "create", "torch", "aiter")
    assert "seal: base: aiter is no installed distribution, its module aiter comes from amd-aiter" in told


def test_a_name_that_nothing_provides_is_refused(make: Make) -> None:
    told = refusal(make(BASE), "create", "torch", "apex", "rocm-profiler-*")
    assert "apex is no installed distribution, and nothing provides such a module" in told
    assert "rocm-profiler-* is no installed" in told


def test_an_optional_name_may_be_absent_but_is_sealed_where_present(make: Make) -> None:
    image = make(BASE)
    assert image.run("seal", "create", "torch", "--optional", "apex", "triton").returncode == 0
    assert list(image.read("seal.json")["distributions"]) == ["torch", "triton"]


@pytest.mark.parametrize("optional", [False, True], ids=["named", "optional"])
def test_a_module_without_metadata_is_refused(make: Make, optional: bool) -> None:  # noqa: FBT001
    image = make(BASE)
    (image.site / "apex").mkdir()
    (image.site / "apex" / "__init__.py").touch()
    told = refusal(image, "create", "torch", *(["--optional"] if optional else []), "apex")
    assert "apex/__init__.py is importable: its metadata is missing" in told


def test_two_owners_of_one_module_are_refused(make: Make) -> None:
    other = Wheel("pytorch-triton-rocm", "3.4.0", (), {"triton/__init__.py": ""})
    told = refusal(make([*BASE, other]), "create", *SEALED)
    assert "seal: base: a second distribution owns the module triton: pytorch_triton_rocm-3.4.0, triton-3.7.0" in told


@pytest.mark.parametrize("folder", ["benchmarks", "docs", "examples", "test", "tests"])
def test_a_folder_that_several_projects_ship_by_mistake_is_no_module(make: Make, folder: str) -> None:
    shipped = {f"{folder}/__init__.py": ""}
    sealed = replace(BASE[2], files={**BASE[2].files, "triton/__init__.py": "", **shipped})
    stranger = Wheel("stranger", "1.0", (), {"stranger/__init__.py": "", **shipped})
    image = make([*BASE[:2], sealed, *BASE[3:], stranger])
    done = image.run("seal", "create", *SEALED)
    assert done.returncode == 0, done.stderr
    assert folder not in image.read("seal.json")["modules"]


@pytest.mark.parametrize(
    ("version_py", "says"),
    [
        ("cuda = None\nhip = None\n", "is not a ROCm build"),
        ("cuda = None\n", "is not a ROCm build"),
        ("cuda: str = '13.0'\nhip = '7.14'\n", "is a CUDA build: torch/version.py has cuda = '13.0'"),
    ],
)
def test_a_torch_that_is_no_rocm_build_is_refused(make: Make, version_py: str, says: str) -> None:
    assert f"seal: base: torch {ROCM} {says}" in refusal(
        make(with_torch({"torch/version.py": version_py})), "create", *SEALED
    )


def test_a_family_that_disagrees_by_its_fields_is_refused(make: Make) -> None:
    vision = replace(BASE[1], files={"torchvision/__init__.py": "", "torchvision/version.py": "cuda = '13.0'\n"})
    told = refusal(make([TORCH, vision, *BASE[2:]]), "create", *SEALED)
    assert "torchvision 0.27.0+rocm7.14.0a20260608 is a CUDA build" in told


@pytest.mark.parametrize(
    ("version_py", "says"),
    [
        ("__version__ = '0.27.0+cu130'\n", "is another build than its metadata says"),
        ("__version__ = '0.28.0'\n", "torchvision/version.py has '0.28.0', and no hip"),
        ("hip = '7.2.1'\n", "is for another ROCm than torch: hip is '7.2.1', torch's is '7.14.60850'"),
        ("__version__ = '0.27.0'\n", None),
        ("__version__ = '0.27.0+rocm7.14.0a20260608'\n", None),
        ("__version__ = '0.27.0+git123'\nhip = '7.14.1'\n", None),
    ],
)
def test_what_a_module_says_of_its_build_has_to_fit(make: Make, version_py: str, says: str | None) -> None:
    vision = replace(BASE[1], files={"torchvision/__init__.py": "", "torchvision/version.py": version_py})
    image = make([TORCH, vision, *BASE[2:]])
    if says:
        told = refusal(image, "create", *SEALED)
        assert f"seal: base: torchvision 0.27.0+rocm7.14.0a20260608 {says}" in told or says in told
    else:
        assert image.run("seal", "create", *SEALED).returncode == 0


def test_the_public_indexs_torch_is_known_by_what_it_calls_itself(make: Make) -> None:
    public = replace(
        TORCH, version="2.12.0", files={"torch/__init__.py": "", "torch/version.py": "__version__ = '2.12.0+cu130'\n"}
    )
    told = refusal(make([public, *OTHERS]), "create", *SEALED)
    assert "torch 2.12.0 is not a ROCm build: torch/version.py has no hip" in told
    assert "torch 2.12.0 is another build than its metadata says: torch/version.py has '2.12.0+cu130'" in told
    assert told.endswith("seal: base: the base came like this, no step has changed it: choose another (base)\n")


def test_a_pip_that_cannot_check_the_base_is_told(make: Make) -> None:
    done = make(BASE).run("seal", "create", *SEALED, PIP_TIMEOUT="soon")
    assert done.returncode == 1, done.stdout
    assert "seal: base: pip check did not run: " in done.stderr
    assert "soon" in done.stderr


def test_a_family_that_disagrees_by_its_requirements_is_refused(make: Make) -> None:
    vision = replace(BASE[1], requires=("torch==2.11.0",))
    told = refusal(make([TORCH, vision, *BASE[2:]]), "create", *SEALED)
    assert f"requires torch==2.11.0, but torch is {ROCM}" in told


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ("triton==3.8.0", "requires triton==3.8.0, but triton is 3.7.0+gitb4e20bbe"),
        ("rocm==7.14.0", "requires rocm==7.14.0, but rocm is not installed"),
        ("rocm==7.14.0; sys_platform != 'win32'", 'requires rocm==7.14.0; sys_platform != "win32", but rocm is not'),
        ("rocm==7.14.0; sys_platform == 'win32'", None),
        ("rocm==7.14.0; extra == 'all'", None),
    ],
)
def test_torch_needs_what_it_requires(make: Make, needs: str, says: str | None) -> None:
    image = make([replace(TORCH, requires=(needs,)), *OTHERS])
    if says:
        assert f"seal: base: torch {ROCM} {says}" in refusal(image, "create", *SEALED)
    else:
        assert image.run("seal", "create", *SEALED).returncode == 0


def test_a_replaced_version_names_step_distribution_and_both(sealed: Image) -> None:
    (sealed.site / f"torch-{ROCM}.dist-info").rename(sealed.site / "torch-2.13.0.dist-info")
    metadata = sealed.site / "torch-2.13.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace(ROCM, "2.13.0"))
    told = refusal(sealed, "check", "VLLM_REQUIREMENTS")
    assert told == f"seal: VLLM_REQUIREMENTS: torch: replaced {ROCM} -> 2.13.0\n"


def test_a_changed_file_is_named(sealed: Image) -> None:
    file = sealed.site / "torch" / "lib" / "a.txt"
    file.write_text("longer\n")
    assert refusal(sealed, "check", "S") == f"seal: S: torch {ROCM}: file changed: {file}\n"


def test_a_file_of_the_same_size_but_another_time_is_changed(sealed: Image) -> None:
    file = sealed.site / "torch" / "lib" / "a.txt"
    os.utime(file, (1, 1))
    assert "file changed" in refusal(sealed, "check", "S")


def test_a_missing_file_is_named(sealed: Image) -> None:
    file = sealed.site / "torch" / "lib" / "a.txt"
    file.unlink()
    assert refusal(sealed, "check", "S") == f"seal: S: torch {ROCM}: file missing: {file}\n"


def test_many_changed_files_are_counted(make: Make) -> None:
    image = make([replace(TORCH, files={**TORCH.files, **{f"torch/{n}.txt": "" for n in range(9)}}), *OTHERS])
    image.run("seal", "create", *SEALED)
    for number in range(9):
        (image.site / "torch" / f"{number}.txt").unlink()
    told = refusal(image, "check", "S")
    assert told.count("file missing") == 3
    assert "and 6 more files" in told


def test_a_record_rewritten_in_the_same_second_is_a_change(sealed: Image) -> None:
    record = sealed.site / f"torch-{ROCM}.dist-info" / "RECORD"
    before = record.stat()
    record.write_text(record.read_text().replace("sha256=", "sha512="))
    os.utime(record, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert refusal(sealed, "check", "S") == f"seal: S: torch {ROCM}: its RECORD changed\n"


def test_a_distribution_that_is_gone_is_named(sealed: Image) -> None:
    done = sealed.start("-m", "pip", "uninstall", "--yes", "triton")
    assert done.returncode == 0, done.stderr
    assert "triton 3.7.0+gitb4e20bbe: the distribution is gone" in refusal(sealed, "check", "S")


def test_a_second_owner_that_arrives_is_a_breach(sealed: Image) -> None:
    Wheel("aiter-rocm", "9", (), {"aiter.py": ""}).unpack(sealed.site)
    told = refusal(sealed, "check", "S")
    assert told == "seal: S: a second distribution owns the module aiter: aiter_rocm-9, amd_aiter-0.1.12\n"


def test_a_file_that_another_distribution_brings_into_torch_is_a_breach(sealed: Image) -> None:
    Wheel("extras", "1", (), {"torch/backends/extra.py": ""}).unpack(sealed.site)
    assert refusal(sealed, "check", "S") == "seal: S: extras brings files into the sealed module torch\n"


def test_what_a_base_comes_with_in_torch_is_no_breach(make: Make) -> None:
    image = make([*BASE, Wheel("extras", "1", (), {"torch/backends/extra.py": ""})])
    assert image.run("seal", "create", *SEALED).returncode == 0
    assert image.read("seal.json")["guests"] == [["torch", "extras"]]
    assert image.run("seal", "check", "S").returncode == 0


def test_a_second_owner_without_record_is_a_breach(sealed: Image) -> None:
    info = sealed.site / "triton_rocm-3.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: triton-rocm\nVersion: 3\n")
    (info / "top_level.txt").write_text("triton\n")
    told = refusal(sealed, "check", "S")
    assert told == "seal: S: a second distribution owns the module triton: triton-3.7.0+gitb4e20bbe, triton_rocm-3\n"


def test_a_second_copy_of_the_metadata_is_a_breach(sealed: Image) -> None:
    Wheel("triton", "9.0").unpack(sealed.site)
    assert "triton" in refusal(sealed, "check", "S")


def test_an_added_distribution_is_sealed_from_its_step_on(sealed: Image) -> None:
    Wheel("vllm", "0.29.0+rocm714").unpack(sealed.site)
    assert sealed.run("seal", "add", "VLLM_INSTALL", "vllm").returncode == 0
    assert sealed.read("seal.json")["distributions"]["vllm"]["step"] == "VLLM_INSTALL"
    assert "vllm==0.29.0+rocm714\n" in (sealed.root / "constraints.txt").read_text()
    (sealed.site / "vllm" / "__init__.py").unlink()
    assert "seal: VIME: vllm 0.29.0+rocm714: file missing" in refusal(sealed, "check", "VIME")


def test_an_editable_distribution_can_be_added(sealed: Image, tmp_path: Path) -> None:
    editable = Wheel("vime", "0.1", (), {"__editable__.vime-0.1.pth": f"{tmp_path}\n"})
    editable.unpack(sealed.site)
    assert sealed.run("seal", "add", "VIME", "vime").returncode == 0
    assert len(sealed.read("seal.json")["distributions"]["vime"]["files"]) == 4


def test_nothing_is_added_over_a_breach(sealed: Image) -> None:
    before = (sealed.root / "seal.json").read_bytes()
    (sealed.site / "torch" / "lib" / "a.txt").unlink()
    Wheel("vllm", "1.0").unpack(sealed.site)
    assert "file missing" in refusal(sealed, "add", "VLLM", "vllm")
    assert (sealed.root / "seal.json").read_bytes() == before


def test_a_distribution_that_shares_a_module_is_not_added(sealed: Image) -> None:
    Wheel("vllm", "1.0").unpack(sealed.site)
    Wheel("vllm-nightly", "1.0", (), {"vllm/__init__.py": ""}).unpack(sealed.site)
    assert "a second distribution owns the module vllm" in refusal(sealed, "add", "VLLM", "vllm")


def test_a_copy_without_record_is_sealed_by_the_files_of_its_modules(make: Make) -> None:
    image = make(BASE)
    info = image.site / "apex-1.0.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: apex\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("apex\n")
    (image.site / "apex").mkdir()
    (image.site / "apex" / "__init__.py").touch()
    image.run("seal", "create", "torch", "apex")
    (image.site / "apex" / "__init__.py").write_text("changed = True\n")
    assert "apex 1.0: file changed" in refusal(image, "check", "S")


def test_rehash_finds_bytes_that_size_and_time_hide(sealed: Image) -> None:
    file = sealed.site / "torch" / "lib" / "a.txt"
    before = file.stat()
    code = f"import json, seal; print(seal.rehash(json.load(open({str(sealed.root / 'seal.json')!r}))))"
    path = str(wheels.INSIDE)
    assert sealed.start("-c", code, PYTHONPATH=path).stdout == "[]\n"
    file.write_text("b\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sealed.run("seal", "check", "S").returncode == 0
    assert (
        sealed.start("-c", code, PYTHONPATH=path).stdout == repr([f"torch: not the bytes of its RECORD: {file}"]) + "\n"
    )


def test_one_changed_file_is_found_among_thirty_thousand(make: Make) -> None:
    """How long that takes is measured by benchmarks/seal.py."""
    many = {f"torch/include/{n % 100}/{n}.h": "" for n in range(30_000)}
    image = make([replace(TORCH, files={**TORCH.files, **many}), *OTHERS])
    assert image.run("seal", "create", *SEALED).returncode == 0
    assert len(image.read("seal.json")["distributions"]["torch"]["files"]) > 30_000
    assert image.run("seal", "check", "S").returncode == 0
    file = image.site / "torch/include/7/12307.h"
    file.write_text("#define TORCH_H\n")
    assert refusal(image, "check", "S") == f"seal: S: torch {ROCM}: file changed: {file}\n"
