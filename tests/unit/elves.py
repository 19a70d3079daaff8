"""Small ELF files with the sections that hold device code."""

from __future__ import annotations

import struct
from collections.abc import Mapping

NO_BYTES, PROGRAM_BITS, STRINGS = 8, 1, 3


def elf(sections: Mapping[str, bytes], kind: int = PROGRAM_BITS) -> bytes:
    """A 64-bit little-endian ELF file with these sections."""
    named = {"": b"", **sections, ".shstrtab": b""}
    names, places = b"", {}
    for name in named:
        places[name] = len(names)
        names += name.encode() + b"\0"
    named[".shstrtab"] = names
    body, rows, start = b"", b"", 64
    for name, content in named.items():
        type_ = {"": 0, ".shstrtab": STRINGS}.get(name, kind)
        rows += struct.pack("<IIQQQQIIQQ", places[name], type_, 0, 0, start + len(body), len(content), 0, 0, 1, 0)
        body += content
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, start + len(body), 0, 64, 56, 0, 64, len(named), len(named) - 1
    )
    return header + body + rows


def bundle(*targets: str, code: bytes = b"code") -> bytes:
    """An offload bundle, with an empty entry for the host as compilers write it."""
    entries = [(b"host-x86_64-unknown-linux-gnu-", b"")]
    entries += [(f"hipv4-amdgcn-amd-amdhsa--{target}".encode(), code) for target in targets]
    place = 32 + sum(24 + len(name) for name, _ in entries)
    table = content = b""
    for name, each in entries:
        table += struct.pack("<QQQ", place + len(content), len(each), len(name)) + name
        content += each
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + content
