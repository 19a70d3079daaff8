"""For which GPUs a library has code, by what compilers and splitters write."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from elves import NO_BYTES, bundle, elf
from pip._vendor import msgpack

from builder.inside import device


def targets(folder: Path, content: bytes) -> set[str]:
    path = folder / "_C.abi3.so"
    path.write_bytes(content)
    return device.targets(path)


def fatbin(folder: Path, content: bytes) -> set[str]:
    return targets(folder, elf({".text": b"x" * 9, ".hip_fatbin": content}))


def zstd(content: bytes) -> bytes:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = ctypes.c_size_t
    size = library.ZSTD_compressBound(ctypes.c_size_t(len(content)))
    target = ctypes.create_string_buffer(size)
    done = library.ZSTD_compress(target, ctypes.c_size_t(size), content, ctypes.c_size_t(len(content)), 3)
    return bytes(target.raw[:done])


def compressed(content: bytes, version: int, method: int) -> bytes:
    packed = zstd(content) if method else zlib.compress(content)
    layout = {1: "<HHIQ", 2: "<HHIIQ", 3: "<HHQQQ"}[version]
    sizes = [4 + struct.calcsize(layout) + len(packed)] if version > 1 else []
    return b"CCOB" + struct.pack(layout, version, method, *sizes, len(content), 0) + packed


def test_every_target_of_every_bundle_counts(tmp_path: Path) -> None:
    content = bundle("gfx942:sramecc+:xnack-", "gfx90a") + bytes(40) + bundle("gfx950")
    assert fatbin(tmp_path, content) == {"gfx942", "gfx90a", "gfx950"}


def test_the_older_name_of_a_bundle_counts(tmp_path: Path) -> None:
    assert fatbin(tmp_path, bundle("gfx942").replace(b"hipv4-", b"hipv-X")) == set()
    one = bundle("gfx942")
    assert fatbin(tmp_path, one) == {"gfx942"}


def test_an_entry_without_code_is_no_code(tmp_path: Path) -> None:
    assert fatbin(tmp_path, bundle("gfx942", code=b"")) == set()


def test_a_name_outside_the_section_is_no_code(tmp_path: Path) -> None:
    assert targets(tmp_path, elf({".rodata": bundle("gfx942")})) == set()
    assert targets(tmp_path, bundle("gfx942")) == set()


def test_a_section_that_takes_no_place_is_no_code(tmp_path: Path) -> None:
    assert targets(tmp_path, elf({".hip_fatbin": bundle("gfx942")}, kind=NO_BYTES)) == set()


@pytest.mark.parametrize("method", [0, 1], ids=["zlib", "zstd"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_compressed_bundles_are_read(tmp_path: Path, version: int, method: int) -> None:
    one = compressed(bundle("gfx942", "gfx950", code=b"code" * 999), version, method)
    assert fatbin(tmp_path, one + bytes(64)) == {"gfx942", "gfx950"}


def test_several_compressed_bundles_are_read(tmp_path: Path) -> None:
    parts = [compressed(bundle(target), 3, method) for target, method in (("gfx942", 0), ("gfx950", 1))]
    assert fatbin(tmp_path, bytes(4096).join(parts)) == {"gfx942", "gfx950"}


@pytest.mark.parametrize(("version", "method"), [(9, 0), (2, 7), (28257, 25710)])
def test_four_letters_are_no_compressed_bundle(tmp_path: Path, version: int, method: int) -> None:
    letters = b"CCOB" + struct.pack("<HH", version, method) + b"\1" * 40
    assert fatbin(tmp_path, letters + bundle("gfx942")) == {"gfx942"}


def test_four_letters_within_a_bundle_are_its_code(tmp_path: Path) -> None:
    assert fatbin(tmp_path, bundle("gfx942", code=b"..CCOB and more than that follows")) == {"gfx942"}


@pytest.mark.parametrize(
    "content", [bundle("gfx942")[:50], compressed(bundle("gfx942"), 3, 1)[:40], compressed(bundle("gfx942"), 2, 0)[:30]]
)
def test_what_is_torn_is_said_to_be(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(device.Torn):
        fatbin(tmp_path, content)


def archive(path: Path, kernels: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    listing: Any = msgpack.packb({"compression_scheme": "none", "gfx_arches": ["gfx1100"], "toc": kernels})
    path.write_bytes(b"KPAK" + struct.pack("<IQ", 1, 64) + bytes(48) + listing)


def reference(*paths: str) -> bytes:
    named: Any = msgpack.packb({"kernel_name": "vllm/_C.abi3.so", "kpack_search_paths": list(paths)})
    return elf({".rocm_kpack_ref": bytes(named) + bytes(8)})


def test_the_archives_that_a_library_names_are_read(tmp_path: Path) -> None:
    kernel = {"type": "hsaco", "ordinal": 0, "original_size": 9}
    archive(
        tmp_path / "kpack" / "vllm_gfx942.kpack",
        {"vllm/_C.abi3.so#0": {"gfx942": kernel}, "other.so#0": {"gfx90a": kernel}},
    )
    archive(tmp_path / "kpack" / "vllm_gfx950.kpack", {"vllm/_C.abi3.so#0": {"gfx950:xnack-": kernel}})
    assert targets(tmp_path, reference("kpack/vllm_@GFXARCH@.kpack")) == {"gfx942", "gfx950"}
    assert targets(tmp_path, reference("kpack/vllm_gfx942.kpack")) == {"gfx942"}
    assert targets(tmp_path, reference("kpack/none.kpack")) == set()


def test_an_archive_that_is_none_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "x.kpack"
    archive(path, {})
    assert targets(tmp_path, reference("x.kpack")) == set()
    for content in (b"<html>", b"KPAC" + path.read_bytes()[4:]):
        path.write_bytes(content)
        with pytest.raises(device.Torn):
            targets(tmp_path, reference("x.kpack"))
