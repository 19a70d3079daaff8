"""The process that looks after a container: what it is called in a label, and whether such a one still lives."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Literal

State = Literal["living", "gone", "unknown"]


def this() -> str:
    """The name of this process, which no other has: machine, id and, where /proc tells them, namespace and begin."""
    return " ".join([socket.gethostname(), str(os.getpid()), *_namespace(), *_began(os.getpid())])


def state(name: str) -> State:
    """Whether a process lives; of another machine, or a namespace that this one does not see into, nobody can know."""
    host, process, *more = name.split(" ") if name.count(" ") in {1, 3} else ("", "")
    if host != socket.gethostname() or more[:1] not in ([], _namespace()):
        return "unknown"
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return "gone"
    except PermissionError:
        pass
    except ValueError:
        return "unknown"
    began = _began(int(process))
    return "gone" if more and began and began != more[1:] else "living"  # ids come again


def _namespace() -> list[str]:
    with contextlib.suppress(OSError):
        return [str(Path("/proc/self/ns/pid").readlink())]
    return []


def _began(process: int) -> list[str]:
    """In ticks since the machine has started."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19:20]
    return []
