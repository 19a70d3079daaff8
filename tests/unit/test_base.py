"""The program that reads a base, run as a base runs it, in small environments of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from elves import bundle, elf
from wheels import HIP, INSIDE, Image, Wheel, image, pip_files

NONCE = "3f2a"
TORCH = "class _C:\n    @staticmethod\n    def _cuda_getArchFlags():\n        return 'gfx942:sramecc+ gfx90a'\n"
DISTRIBUTIONS = (
    Wheel(
        "Torch",
        "2.12.0+a",
        ("triton==3.7.0", "cupy; extra == 'cuda'", "colorama; platform_system == 'Windows'"),
        {"torch/__init__.py": TORCH, "torch/version.py": HIP},
    ),
    Wheel("triton", "3.6.0"),
    Wheel("torchaudio", "2.11.0", (), {"torchaudio/version.py": "cuda = '12.9'\nhip = None\n"}),
    Wheel("torchvision", "0.27.0", (), {"torchvision/version.py": "cuda = None\n"}),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("base")
    made = image(folder, pip_files(folder / "pip", "bundled"), DISTRIBUTIONS)
    for name, content in {"bin/hipcc": b"", "lib/libamdhip64.so": b""}.items():
        (made.site / "_rocm_sdk_devel" / name).parent.mkdir(parents=True)
        (made.site / "_rocm_sdk_devel" / name).write_bytes(content)
    tools = folder / "tools"
    tools.mkdir()
    for name, mode in {"ccache": 0o755, "g++": 0o755, "notes": 0o644, "odd name": 0o755}.items():
        (tools / name).write_text("")
        (tools / name).chmod(mode)
    return made


def read(base: Image, *first: str, **environment: str) -> dict[str, Any]:
    done = run(base, *first, **environment)
    lines = [line.removeprefix(NONCE) for line in done.stdout.splitlines() if line.startswith(NONCE)]
    assert len(lines) == 1, done.stderr
    found: dict[str, Any] = json.loads(lines[0])
    return found


def run(base: Image, *first: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = base.environment() | {"PATH": str(base.root.parent / "tools")} | environment
    named = [word for python in first for word in ("--python", python)]
    command = [sys.executable, str(INSIDE / "base.py"), "find", *named, "--nonce", NONCE]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def test_it_is_read_by_the_interpreter_that_imports_torch(base: Image) -> None:
    found = read(base, str(base.root / "nothing"), PATH=f"/bin:{base.python.parent}")
    assert found["torch"]
    assert found["python"]["executable"] == str(base.python)
    assert found["python"]["site_packages"] == str(base.site)
    assert found["python"]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_distributions_have_version_requirements_and_flavour(base: Image) -> None:
    found = read(base, str(base.python))["distributions"]
    assert found["torch"] == {"version": "2.12.0+a", "requires": ["triton==3.7.0"], "flavour": "rocm"}
    assert [found[name]["flavour"] for name in ("torchaudio", "torchvision", "triton")] == ["cuda", "cpu", None]


def test_tools_are_what_can_be_called(base: Image) -> None:
    assert read(base, str(base.python))["tools"] == ["ccache", "g++"]


def test_what_pip_check_says_is_a_fact(base: Image) -> None:
    assert read(base, str(base.python))["pip_check"] == [
        "torch 2.12.0+a has requirement triton==3.7.0, but you have triton 3.6.0."
    ]


def test_a_pip_that_cannot_check_has_said_nothing_of_the_base(base: Image) -> None:
    assert read(base, str(base.python), PIP_TIMEOUT="soon")["pip_check"] is None


def test_rocm_is_found_where_the_environment_says_else_where_pip_puts_it(base: Image, tmp_path: Path) -> None:
    devel = str(base.site / "_rocm_sdk_devel")
    assert read(base, str(base.python))["rocm_root"] == devel
    assert read(base, str(base.python), ROCM_PATH=str(tmp_path))["rocm_root"] == devel
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/hipcc").touch()
    assert read(base, str(base.python), ROCM_PATH=str(tmp_path))["rocm_root"] == str(tmp_path)


def test_device_code_is_read_from_torch_s_files_else_from_what_it_was_built_for(base: Image) -> None:
    assert read(base, str(base.python))["device_code"] == ["gfx90a", "gfx942"]
    library = base.site / "torch/lib/libtorch_hip.so"
    library.parent.mkdir()
    library.write_bytes(elf({".hip_fatbin": bundle("gfx950", "gfx942:xnack-")}))
    try:
        assert read(base, str(base.python))["device_code"] == ["gfx942", "gfx950"]
        library.write_bytes(elf({".hip_fatbin": b"CCOB"}))
        assert read(base, str(base.python))["device_code"] == ["gfx90a", "gfx942"]
    finally:
        library.unlink()


def test_without_torch_it_is_said_why_and_nothing_is_made_up(base: Image) -> None:
    init = base.site / "torch/__init__.py"
    init.write_text("raise OSError('libamdhip64.so.7: cannot open')\n")
    try:
        done = run(base, str(base.python))
    finally:
        init.write_text(TORCH)
    found = json.loads(done.stdout.removeprefix(NONCE))
    assert (found["torch"], found["device_code"]) == (False, None)
    assert found["python"]["executable"] == str(base.python)
    assert f"{base.python}: OSError: libamdhip64.so.7: cannot open" in done.stderr
