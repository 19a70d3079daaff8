"""Read for which GPUs a library carries code: bundles, compressed bundles, and the archives that it names."""

from __future__ import annotations

import ctypes
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from pip._vendor import msgpack

FATBIN, ARCHIVES = ".hip_fatbin", ".rocm_kpack_ref"  # sections of an ELF file
BUNDLE, ARCHIVE = b"__CLANG_OFFLOAD_BUNDLE__", b"KPAK"
MAGIC = re.compile(BUNDLE + rb"|CCOB")
TARGET = re.compile(rb"hip(?:v4)?-amdgcn-amd-amdhsa-[^-]*-(gfx[0-9a-f]+)(?::.*)?")
# What follows magic, version and method of a compressed bundle: its size (not in version 1), the size before, a hash.
HEADERS = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}
ZLIB, ZSTD = 0, 1
NO_BYTES = 8  # the type of a section that takes no place in the file


class Unreadable(Exception):  # noqa: N818 - an outcome, not an error
    """There is code, and this image cannot read for which GPU."""


class Torn(Exception):  # noqa: N818 - an outcome, not an error
    """There is something, and nobody can read it."""


def targets(path: Path) -> set[str]:
    """The GPU targets that a library has code for.

    Raises:
        Unreadable, Torn
    """
    found = set[str]()
    try:
        for title, content in sections(path.read_bytes()):
            found |= archived(path, content) if title == ARCHIVES else bundled(content)
    except (struct.error, zlib.error, ValueError, TypeError, KeyError, IndexError) as error:
        raise Torn(f"{type(error).__name__}: {error}") from None
    return found


def sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Those of a 64-bit little-endian ELF file that have to do with device code."""
    if data[:6] != b"\x7fELF\x02\x01":
        return
    (table,), (size, count, names) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQ", data, table + number * size) for number in range(count)]
    for name, kind, _, _, offset, length in rows:
        start = rows[names][4] + name
        title = data[start:data.index(b"\0", start)].decode()
        if title in (FATBIN, ARCHIVES) and kind != NO_BYTES:
            yield title, data[offset:offset + length]


def bundled(data: bytes) -> set[str]:
    """The targets of a section's bundles, one behind the other; inside of one, its magic may occur again."""
    found, place = set[str](), 0
    while match := MAGIC.search(data, place):
        if match[0] == BUNDLE:
            new, place = entries(data, match.start())
        else:
            content, place = decompressed(data, match.start())
            new = entries(content, 0)[0] if content else set()
        found |= new
    return found


def entries(data: bytes, start: int) -> tuple[set[str], int]:
    """The targets of a bundle's entries that are not empty, and where it ends."""
    found, place = set(), start + len(BUNDLE) + 8
    (count,), end = struct.unpack_from("<Q", data, place - 8), place
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, place)
        if (target := TARGET.fullmatch(data[place + 24:place + 24 + length])) and size:
            found.add(target[1].decode())
        place, end = place + 24 + length, max(end, start + offset + size)
    return found, end


def decompressed(data: bytes, start: int) -> tuple[bytes, int]:
    """What was compressed, and where that ends; nothing where four letters mean nothing."""
    version, method = struct.unpack_from("<HH", data, start + 4)
    if version not in HEADERS or method not in (ZLIB, ZSTD):
        return b"", start + 4
    *whole, size, _ = struct.unpack_from(HEADERS[version], data, start + 8)
    begin, end = start + 8 + struct.calcsize(HEADERS[version]), start + whole[0] if whole else len(data)
    content, length = (unzip if method == ZLIB else unzstd)(data[begin:end], size)
    if len(content) != size:
        raise Torn("a compressed bundle has another size than it says")
    return content, begin + length


def unzip(data: bytes, _: int) -> tuple[bytes, int]:
    reader = zlib.decompressobj()
    return reader.decompress(data), len(data) - len(reader.unused_data)


def unzstd(data: bytes, size: int) -> tuple[bytes, int]:
    """By the system's own library: Python has none before 3.14."""
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        raise Unreadable("compressed with zstd, and the image has no libzstd.so.1") from None
    number, target = ctypes.c_size_t, ctypes.create_string_buffer(size)
    library.ZSTD_decompress.restype = library.ZSTD_findFrameCompressedSize.restype = number
    length = min(library.ZSTD_findFrameCompressedSize(data, number(len(data))), len(data))
    done = library.ZSTD_decompress(target, number(size), data, number(length))
    return target.raw[:done] if done <= size else b"", length


def archived(path: Path, content: bytes) -> set[str]:
    """The targets of a library's kernels in the .kpack files beside it."""
    reader = msgpack.Unpacker()
    reader.feed(content)
    named = reader.unpack()
    found = set()
    for pattern in named["kpack_search_paths"]:
        place = path.resolve().parent / pattern.replace("@GFXARCH@", "*")
        for archive in sorted(Path("/").glob(str(place).lstrip("/"))):
            data = archive.read_bytes()
            if data[:4] != ARCHIVE:
                raise Torn(f"{archive} is no archive of kernels")
            (start,) = struct.unpack_from("<Q", data, 8)
            kernels = msgpack.unpackb(data[start:])["toc"]
            owned = [codes for name, codes in kernels.items() if name.rpartition("#")[0] == named["kernel_name"]]
            found |= {target.partition(":")[0] for codes in owned for target in codes}
    return found
