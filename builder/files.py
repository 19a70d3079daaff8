"""Files that are written whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from builder.refused import writing

if TYPE_CHECKING:
    from collections.abc import Mapping

UNFINISHED = ".new"  # ends the name of what is still being written, or never was to its end


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` whole: a reader sees the old text or the new, never a part."""
    write_together({path: text.encode()})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Replace several files, each whole; none, where one of them cannot be written or replaced.

    Raises:
        UnwritableError
    """
    temporary: dict[Path, Path] = {}
    before: dict[Path, bytes | None] = {}
    try:
        for path, content in files.items():
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
                temporary[path] = Path(name)
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())  # a machine that fails must not leave the new name with nothing in it
                temporary[path].chmod(0o644)
        for path, new in temporary.items():
            with writing(path):
                before[path] = path.read_bytes() if path.is_file() else None
                new.replace(path)
    except BaseException:
        for path, old in before.items():
            if old is not None:
                path.write_bytes(old)
            elif path.is_file():
                path.unlink()
        raise
    finally:
        for new in temporary.values():
            new.unlink(missing_ok=True)
