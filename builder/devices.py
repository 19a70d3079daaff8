"""The GPU devices of this machine, as a container has to be given them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
