"""A cold command, from manifest to Dockerfile: whole processes, beside the bare imports and beside the peers."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.telling import Target, tell
from benchmarks.timing import in_turn, medians, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

IMAGE, ROUNDS, ALLOWED = "rocm7.14", 15, 1.5
SLOW_S, SLOW_ROUNDS = 5, 3  # what takes so long has fewer rounds: its ratio is no matter of a tenth
OURS, BARE, USED = "ours", "bare imports", "bare imports, used"
DOES = {
    OURS: "reads and checks manifest, shared file and facts; renders and holds the file against every rule; writes it",
    BARE: "`import yaml, jinja2, pydantic, click`: pydantic imports next to nothing before it is used",
    USED: "the same, with one empty model, command and template environment",
}
LIBRARIES = "import yaml, jinja2, pydantic, click"
USE = "class Model(pydantic.BaseModel): pass\nclick.command()(lambda: None)\njinja2.Environment()"


def main() -> None:
    known = {name: peer for name, peer in peers.known().items() if peer.command}
    python = [sys.executable, "-c"]
    actions: dict[str, Callable[[], object]] = {
        OURS: lambda: run([sys.executable, "-m", "builder", "render", IMAGE]),
        BARE: lambda: run([*python, LIBRARIES]),
        USED: lambda: run([*python, f"{LIBRARIES}\n{USE}"]),
    }
    with tempfile.TemporaryDirectory() as scratch:
        rivals = {name: Rival(name, peer, Path(scratch) / name) for name, peer in known.items()}
        took = {name: rival.tried() for name, rival in rivals.items()}
        slow = {name: rival for name, rival in rivals.items() if (took[name] or 0) > SLOW_S}
        actions |= {name: rival for name, rival in rivals.items() if took[name] and name not in slow}
        spent = in_turn(actions, ROUNDS) | in_turn(slow, SLOW_ROUNDS)
    report(rivals, {name: each for name, each in spent.items() if name not in rivals or not rivals[name].fault})


@dataclass
class Rival:
    """A peer with its folder; once it has failed it is not asked again, and the others are not disturbed.

    Attributes:
        fault: why it could not be measured.
    """

    name: str
    peer: peers.Peer
    folder: Path
    fault: str = ""

    def tried(self) -> float | None:
        """The seconds of its first run, in which it is installed before; None where it fails."""
        try:
            peers.installed(self.name, self.peer)
        except peers.PeerError as error:
            self.fault = str(error)
            return None
        self.folder.mkdir()
        self.peer.write(self.folder)
        started = time.perf_counter()
        self()
        return None if self.fault else time.perf_counter() - started

    def __call__(self) -> None:
        if not self.fault:
            try:
                self.peer.run(peers.CACHE / self.name, self.folder)
            except peers.PeerError as error:
                self.fault = str(error)


def report(rivals: Mapping[str, Rival], spent: Mapping[str, Sequence[float]]) -> None:
    found = medians(spent)
    rows: list[list[object]] = []
    for name, does in {**DOES, **{name: rival.peer.more for name, rival in rivals.items()}}.items():
        if name in found:
            figures = [round(found[name], 3), round(min(spent[name]), 3), round(found[name] / found[BARE], 2)]
            rows.append([name, *figures, does])
        else:
            rows.append([name, None, None, None, f"could not be measured: {rivals[name].fault}"])
    beside = {name: found.get(name) for name, rival in rivals.items() if not rival.peer.is_library}
    tell(
        title="A cold command",
        how=f"Whole processes in turn, the median of {ROUNDS} (of {SLOW_ROUNDS} for what takes over {SLOW_S} s). "
        f"Ours is `python -m builder render {IMAGE}`; a peer has a small image of its own kind to write. It says so "
        "where a peer does more.",
        columns=["what", "median (s)", "fastest (s)", "against the bare imports", "what it does, or does beside it"],
        rows=rows,
        targets=[
            Target(
                what="against the bare imports", value=round(found[OURS] / found[BARE], 2), allowed=ALLOWED, unit="x"
            ),
            *(_beside(name, took, found[OURS]) for name, took in beside.items()),
        ],
        notes=[
            f"The versions of the peers: {', '.join(rival.peer.packages[0] for rival in rivals.values())}.",
            f"Rounds differ by {statistics.stdev(spent[OURS]) / found[OURS]:.0%} (standard deviation of ours).",
        ],
    )


def _beside(name: str, took: float | None, ours: float) -> Target:
    value = None if took is None else round(took / ours, 2)
    return Target(what=f"{name} against ours", value=value, allowed=1, unit="x", at_least=True)


if __name__ == "__main__":
    main()
