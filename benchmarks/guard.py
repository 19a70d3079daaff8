"""What the guards cost: a judged plan and its exact install, against pip's dry run and its plain install.

Both install vime's requirement list from this machine's own index over the stand-in base's distributions, with the
same constraints, in turn: with full caches, as after a bump, and with empty ones, as on an engine's first day.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, in_turn, medians, run

sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("guards", "unit")]

import in_turn as cases  # noqa: E402 (where the tests keep them)
import trapping  # noqa: E402
from wheels import pip_files  # noqa: E402

from builder import lists  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LIST = ROOT / "standins" / "sources" / "vime" / "requirements.txt"
NOTE = """A judged install is pip's dry run, a look at the wheels, uv's copies (a cache mount is another file system,
so it cannot link) and bytecode, which the cache keeps beside the wheels, by their hashes: with full caches nothing is
compiled, with empty ones everything."""
FULL, EMPTY = "full caches", "empty caches"
STEP, ALLOWED = "OTHERS", 0.4  # no step of the policy: what the last one has to bring is not here
ROUNDS = {FULL: 5, EMPTY: 3}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        made = trapping.bench(Path(scratch), pip_files(ROOT / ".cache" / "pips", "newest"))
        commands = _commands(made)
        _without_records(made)
        cache = Path(scratch) / "cache"
        spent = {
            caches: _spent(made, commands, cache, rounds, empty=caches == EMPTY) for caches, rounds in ROUNDS.items()
        }
        count = len(json.loads((Path(made.home) / "plans" / f"{STEP}.json").read_text("utf-8"))["distributions"])
    dry, plain, ours = commands
    tell(
        title="The guard",
        how=f"vime's list, {count} distributions from a real index, over the stand-in base's; medians of "
        f"{ROUNDS[FULL]} with full caches, of {ROUNDS[EMPTY]} with empty ones.",
        columns=["what", *(f"{caches} (s)" for caches in ROUNDS)],
        rows=[[name, *(round(spent[caches][name], 1) for caches in ROUNDS)] for name in commands],
        targets=[
            Target(
                what=f"judged, of dry run and plain install, {caches}",
                value=round(found[ours] / (found[dry] + found[plain]), 2),
                allowed=ALLOWED,
                unit="x",
            )
            for caches, found in spent.items()
        ],
        notes=[NOTE],
    )


def _judge(made: trapping.Bench) -> list[str]:
    return [made.python, f"{made.home}/bin/judge.py", "--root", made.home]


def _commands(made: trapping.Bench) -> dict[str, list[str]]:
    """What is compared, by name; the last one is ours."""
    pip = [made.python, "-m", "pip", "install", "--only-binary=:all:"]
    pip += ["-c", f"{made.home}/constraints.txt", "-r", f"{made.home}/requirements.txt"]
    return {
        "dry run": [*pip, "--dry-run"],
        "plain install": pip,
        "judged and installed": [*_judge(made), "install", STEP],
    }


def _without_records(made: trapping.Bench) -> None:
    """Have the base kept as it is after the image's own removal of PyJWT, a copy without RECORD."""
    ((place, kept),) = made.folders.items()
    run([*_judge(made), "remove", "PyJWT"])
    shutil.rmtree(kept)
    shutil.copytree(place, kept, symlinks=True)
    _prepare(Path(kept) / "image")


def _spent(
    made: trapping.Bench, commands: Mapping[str, list[str]], cache: Path, rounds: int, *, empty: bool
) -> dict[str, float]:
    """The seconds of each command, in turn, each over the base as it was."""
    environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
    environment["PIP_EXTRA_INDEX_URL"] = ""  # one index for both
    environment |= {"XDG_CACHE_HOME": f"{cache}", "PIP_CACHE_DIR": f"{cache}/pip"}
    actions: dict[str, Callable[[], object]] = {}
    for name, command in commands.items():
        actions[f"before {name}"] = partial(_as_before, made, cache if empty else None)
        actions[name] = partial(run, command, environment=environment)
    return medians(in_turn(actions, rounds))


def _as_before(made: trapping.Bench, cache: Path | None) -> None:
    """The base as it was, and no cache where one is given."""
    cases.restore(dict(made.folders))
    if cache:
        shutil.rmtree(cache, ignore_errors=True)


def _prepare(home: Path) -> None:
    """The image's policy with vime's list as its set, and the manifest's constraints for both."""
    policy = dict(lists.policy(trapping.MANIFEST))
    (home / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
    rules = lists.requirement_set(trapping.MANIFEST.sources["vime"]) | {"file": "requirements.txt"}
    (home / "sets").mkdir(exist_ok=True)
    (home / "sets" / f"{STEP}.json").write_text(json.dumps(rules), encoding="utf-8")
    shutil.copy(LIST, home / "requirements.txt")
    held = trapping.MANIFEST.constraints
    with (home / "constraints.txt").open("a", encoding="utf-8") as file:
        file.writelines(f"{name}{constraint.version}\n" for name, constraint in held.items())


if __name__ == "__main__":
    main()
