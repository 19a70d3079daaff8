"""The GPU devices of this machine, as a container has to be given them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

KFD = Path("/dev/kfd")
DRI = Path("/dev/dri")


@dataclass(frozen=True, slots=True)
class Devices:
    """Device paths, and the numeric groups that may open them: group names mean other numbers in a container."""

    paths: tuple[str, ...]
    groups: tuple[int, ...]


def of_host(kfd: Path = KFD, dri: Path = DRI) -> Devices:
    """The AMD GPUs' nodes; none where this machine has no driver for them."""
    if not kfd.exists():
        return Devices((), ())
    nodes = [kfd, *sorted(dri.glob("renderD*"))]
    groups = {node.stat().st_gid for node in nodes} - {0}
    return Devices(tuple(str(path) for path in (kfd, dri) if path.exists()), tuple(sorted(groups)))


def of(*, is_local: bool) -> Devices:
    """Those of the machine that an engine runs on; of another machine than this, none are known."""
    return of_host() if is_local else Devices((), ())


def why_none(*, is_local: bool) -> str:
    """Why no GPU is given to a container."""
    return (
        f"this machine has no {KFD}"
        if is_local
        else "the engine is on another machine, or in another container: run this there"
    )


def host_options(found: Devices) -> dict[str, Any]:
    """What a container needs of its host to use the GPUs, in the words of the SDK's create_host_config."""
    return {
        "ipc_mode": "host",  # /dev/shm is then the host's whole one; a container's own has 64 MB
        "cap_add": ["SYS_PTRACE"],  # with the next line: what ROCm's debuggers and IPC by file descriptor need
        "security_opt": ["seccomp=unconfined"],
        "devices": list(found.paths),
        "group_add": [str(group) for group in found.groups],
    }
