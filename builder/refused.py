"""What the system refuses to do with a file, in our words: which file, why, and what to look at."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import Problem, UnwritableError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
