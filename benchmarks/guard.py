"""What the guards cost: a judged plan and its exact install, against pip's dry run and its plain install.

Both install vime's requirement list from this machine's own index over the stand-in base's distributions, with the
same constraints and warm caches, in turn.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, in_turn, medians, run

sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("guards", "unit")]

import in_turn as cases  # noqa: E402 (where the tests keep them)
import trapping  # noqa: E402
from wheels import pip_files  # noqa: E402

from builder import lists  # noqa: E402

LIST = ROOT / "standins" / "sources" / "vime" / "requirements.txt"
NOTE = """A judged install is pip's dry run, a look at the wheels, uv's copies (a cache mount is another file system,
so it cannot link) and bytecode, which the cache keeps by the wheel's hash. Where a wheel is new to an engine its
modules are compiled: the row "nothing compiled before" is the price when all are."""
COLD = "judged, nothing compiled before"
STEP, ROUNDS, ALLOWED = "OTHERS", 5, 0.4  # no step of the policy: what the last one has to bring is not here


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        made = trapping.bench(Path(scratch), pip_files(ROOT / ".cache" / "pips", "newest"))
        ((place, kept),) = made.folders.items()
        judge = [made.python, f"{made.home}/bin/judge.py", "--root", made.home]
        run([*judge, "remove", "PyJWT"])  # a copy without RECORD, which no pip replaces
        shutil.rmtree(kept)
        shutil.copytree(place, kept, symlinks=True)
        _prepare(Path(kept) / "image")
        environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
        environment["PIP_EXTRA_INDEX_URL"] = ""  # one index for both
        environment |= {"XDG_CACHE_HOME": f"{scratch}/cache", "PIP_CACHE_DIR": f"{scratch}/cache/pip"}
        pip = [made.python, "-m", "pip", "install", "--only-binary=:all:"]
        pip += ["-c", f"{made.home}/constraints.txt", "-r", f"{made.home}/requirements.txt"]
        actions = {
            "as the base was": lambda: cases.restore(dict(made.folders)),
            "dry run": lambda: run([*pip, "--dry-run"], environment=environment),
            "plain install": lambda: run(pip, environment=environment),
            "as it was again": lambda: _forget(Path(scratch), made),
            COLD: lambda: run([*judge, "install", STEP], environment=environment),
            "as it was once more": lambda: cases.restore(dict(made.folders)),
            "judged and installed": lambda: run([*judge, "install", STEP], environment=environment),
        }
        spent = medians(in_turn(actions, ROUNDS))
        count = len(json.loads((Path(made.home) / "plans" / f"{STEP}.json").read_text("utf-8"))["distributions"])
    shown = ("dry run", "plain install", "judged and installed", COLD)
    ratio, cold = (round(spent[name] / (spent[shown[0]] + spent[shown[1]]), 2) for name in shown[2:])
    tell(
        title="The guard",
        how=f"vime's list, {count} distributions from a real index, over the stand-in base's; caches warm, median of "
        f"{ROUNDS}.",
        columns=["what", "median (s)"],
        rows=[[name, round(spent[name], 1)] for name in shown],
        targets=[
            Target(what="judged, of dry run and plain install", value=ratio, allowed=ALLOWED, unit="x"),
            Target(what="the same, nothing compiled before", value=cold, allowed=ALLOWED, unit="x"),
        ],
        notes=[NOTE],
    )


def _forget(scratch: Path, made: trapping.Bench) -> None:
    """The base as it was, and no bytecode kept."""
    cases.restore(dict(made.folders))
    shutil.rmtree(scratch / "cache" / "uv" / "bytecode", ignore_errors=True)


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
