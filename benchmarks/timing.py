"""How long programs take beside each other: in turn, so that a busy moment hits all; the median counts."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).parents[1]


def in_turn(actions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """The seconds of each action in each round; a first round warms up and does not count."""
    spent: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if number:
                spent[name].append(time.perf_counter() - started)
        sys.stderr.write(f"round {number} of {rounds}\n")
    return spent


def medians(spent: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in spent.items()}


def as_users_have_it(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what keeps Python from keeping bytecode: with that, every process compiles anew."""
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
) -> str:
    """What a program prints; where it fails, its last words end the benchmark."""
    own = as_users_have_it(os.environ if environment is None else environment)
    done = subprocess.run(command, cwd=cwd, env=own, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout
