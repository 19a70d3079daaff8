"""How a finished image is run: the values, and the `docker run` that says the same."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from manifests import REAL

from builder import devices, manifest, running
from builder.devices import Devices
from builder.errors import UsageError

MANIFEST = manifest.load(REAL)
TWO_GPUS = Devices(("/dev/kfd", "/dev/dri"), (44, 109))


def words(*binds: str, command: tuple[str, ...] = (), found: Devices = TWO_GPUS) -> list[str]:
    return shlex.split(running.command_line(running.session("vime:x", command, binds, found)))


def after(option: str, line: list[str]) -> list[str]:
    return [line[at + 1] for at, word in enumerate(line) if word == option]


def test_devices_come_with_the_numbers_of_their_groups() -> None:
    line = words()
    assert after("--device", line) == ["/dev/kfd", "/dev/dri"]
    assert after("--group-add", line) == ["44", "109"]


def test_without_a_gpu_no_device_is_asked_for() -> None:
    line = words(found=Devices((), ()))
    assert not {"--device", "--group-add"} & set(line)


def test_memory_is_shared_with_the_host_and_may_be_locked() -> None:
    line = words()
    assert after("--ipc", line) == ["host"]
    assert after("--ulimit", line) == ["memlock=-1", "stack=67108864"]


def test_a_shell_is_the_default_and_the_image_s_entrypoint_is_out_of_the_way() -> None:
    assert words()[-2:] == ["vime:x", "bash"]
    assert after("--entrypoint", words()) == [""]
    assert words(command=("python", "-c", "print(1)"))[-3:] == ["python", "-c", "print(1)"]


def test_a_working_copy_lies_over_the_tree_that_python_imports(tmp_path: Path) -> None:
    folder = tmp_path / "my vime"
    folder.mkdir()
    binds = running.binds(MANIFEST, running.folders({"vime": str(folder)}))
    assert after("--volume", words(*binds)) == [f"{folder}:{MANIFEST.sources['vime'].checkout}"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("vllm", "vllm is installed as a wheel; the image has no tree of it\n    hint: editable are vime, megatron"),
        ("vimee", "no source 'vimee' in images/rocm7.14.yaml\n    hint: did you mean 'vime'?"),
    ],
)
def test_what_has_no_tree_cannot_be_covered(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        running.binds(MANIFEST, {source: tmp_path})
    assert message in str(caught.value)


@pytest.mark.parametrize("path", ["nowhere", "a:b"])
def test_a_folder_that_cannot_be_mounted_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    with pytest.raises(UsageError, match=path):
        running.folders({"vime": str(tmp_path / path)})


def test_a_machine_without_the_driver_has_no_devices(tmp_path: Path) -> None:
    assert devices.of_host(tmp_path / "kfd", tmp_path) == Devices((), ())


def test_groups_are_those_of_the_nodes(tmp_path: Path) -> None:
    dri = tmp_path / "dri"
    dri.mkdir()
    for name, group in (("kfd", 109), ("dri/renderD128", 44), ("dri/renderD129", 44), ("dri/card0", 7)):
        (tmp_path / name).touch()
        if os.getuid() == 0:
            os.chown(tmp_path / name, -1, group)
    found = devices.of_host(tmp_path / "kfd", dri)
    own = {os.getgid()} - {0}
    assert found.paths == (str(tmp_path / "kfd"), str(dri))
    assert set(found.groups) == ({44, 109} if os.getuid() == 0 else own)


def test_the_nodes_of_this_machine_are_nothing_to_an_engine_on_another() -> None:
    assert devices.of(is_local=True) == devices.of_host()
    assert devices.of(is_local=False) == Devices((), ())
    assert "another machine" in devices.why_none(is_local=False)
