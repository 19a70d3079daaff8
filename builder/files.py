"""Files that are written whole, or not at all; and what the system refuses to do with one, in our words."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import Problem, UnwritableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

UNFINISHED = ".new"  # ends the name of what is still being written, or never was to its end
# By what the system says; `{file}` and `{folder}` are as a shell takes them.
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room on its disk: df -h {folder}; df -i {folder}"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "see who may do that: ls -ld {folder} {file}; id"),
    errno.EROFS: "what only reads still works, as: python -m builder check; to write, remount it: findmnt -T {folder}",
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP), "take another name, or another folder"),
    **dict.fromkeys(
        (errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY),
        "see what stands there: ls -ld {folder} {file}; of what belongs to the checkout: git status",
    ),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "too many files are open at a time: ulimit -n"),
    **dict.fromkeys((errno.EAGAIN, errno.ENOMEM), "end what else takes memory and processes: ulimit -u; free -h"),
    **dict.fromkeys((errno.EIO, errno.ESTALE, errno.ENOLCK), "its disk does not do its work: findmnt -T {folder}"),
    **dict.fromkeys(
        (errno.EFBIG, errno.EBUSY, errno.ETXTBSY, errno.EXDEV, errno.ENXIO), "see its disk: df -hT {folder}"
    ),
}


@contextlib.contextmanager
def writing(path: Path | None = None) -> Iterator[None]:
    """Have what the system says against a file told in our words.

    Args:
        path: a file that is written; without it, whichever the system names, read or written.

    Raises:
        UnwritableError
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        raise UnwritableError(_problem(error, path)) from error


def _problem(error: OSError, path: Path | None) -> Problem:
    named = os.fsdecode(path or error.filename or "")
    with contextlib.suppress(OSError):  # where the user stands may be gone
        named = named.removeprefix(f"{Path.cwd()}{os.sep}")
    doing = "write" if path else "read or write"
    reason = (error.strerror or str(error)).lower()
    file, folder = shlex.quote(named), shlex.quote(os.path.dirname(named) or ".")  # noqa: PTH120 (it may be no path)
    remedy = _REMEDIES[error.errno or 0].format(file=file, folder=folder)
    return Problem(f"cannot {doing} {named}: {reason}" if named else f"cannot {doing}: {reason}", hint=remedy)


def assert_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before an hour of work ends there."""
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


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
