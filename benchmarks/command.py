"""A cold command, from manifest to Dockerfile: whole processes, beside the bare imports and beside the peers."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.telling import Target, tell
from benchmarks.timing import in_turn, medians, run

if TYPE_CHECKING:
    from collections.abc import Callable

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
    python = [sys.executable, "-c"]
    actions: dict[str, Callable[[], object]] = {
        OURS: lambda: run([sys.executable, "-m", "builder", "render", IMAGE]),
        BARE: lambda: run([*python, LIBRARIES]),
        USED: lambda: run([*python, f"{LIBRARIES}\n{USE}"]),
    }
    known = {name: peer for name, peer in peers.known().items() if peer.command}
    places = {name: peers.installed(name, peer) for name, peer in known.items()}
    missing = {name: place for name, place in places.items() if isinstance(place, str)}
    slow: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, place in places.items():
            if isinstance(place, str):
                continue
            folder = Path(scratch) / name
            known[name].write(folder)
            folder.mkdir(exist_ok=True)
            actions[name] = lambda peer=known[name], place=place, folder=folder: peer.run(place, folder)  # type: ignore[misc]
            started = time.perf_counter()
            actions[name]()
            if time.perf_counter() - started > SLOW_S:
                slow |= in_turn({name: actions.pop(name)}, SLOW_ROUNDS)
        spent = in_turn(actions, ROUNDS) | slow
    found = medians(spent)
    rivals = {name: found.get(name) for name, peer in known.items() if not peer.is_library}
    tell(
        title="A cold command",
        how=f"Whole processes in turn, the median of {ROUNDS} (of {SLOW_ROUNDS} for what takes over {SLOW_S} s). "
        f"Ours is `python -m builder render {IMAGE}`; a peer has a small image of its own kind to write. It says so "
        "where a peer does more.",
        columns=["what", "median (s)", "fastest (s)", "against the bare imports", "what it does, or does beside it"],
        rows=[
            [name, round(found[name], 3), round(min(spent[name]), 3), round(found[name] / found[BARE], 2), does]
            for name, does in {**DOES, **{name: known[name].more for name in known}}.items()
            if name in found
        ],
        targets=[
            Target(
                what="against the bare imports",
                value=round(found[OURS] / found[BARE], 2),
                allowed=ALLOWED,
                unit="x",
            ),
            *(
                Target(
                    what=f"{name} against ours",
                    value=None if took is None else round(took / found[OURS], 2),
                    allowed=1,
                    unit="x",
                    at_least=True,
                )
                for name, took in rivals.items()
            ),
        ],
        notes=[
            *(f"{name} could not be measured: {why}." for name, why in missing.items()),
            f"The versions of the peers: {', '.join(peer.packages[0] for peer in known.values())}.",
            f"Rounds differ by {statistics.stdev(spent[OURS]) / found[OURS]:.0%} (standard deviation of ours).",
        ],
    )


if __name__ == "__main__":
    main()
