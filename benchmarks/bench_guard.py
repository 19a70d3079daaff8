"""What the guards cost: a judged plan and its exact install, against pip's dry run and its plain install.

Run by `make bench-guard`. Both install vime's requirement list from this machine's own index over the stand-in base's
distributions, with the same constraints and warm caches, in turn; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import in_turn
import trapping
from wheels import pip_files

from builder import lists

if TYPE_CHECKING:
    from collections.abc import Mapping

STEP = "REQUIREMENTS_VIME"
LIST = trapping.ROOT / "standins" / "sources" / "vime" / "requirements.txt"
LIMIT = 0.4


def seconds(command: list[str], environment: Mapping[str, str]) -> float:
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        made = trapping.bench(Path(scratch), pip_files(trapping.ROOT / ".cache" / "pips", "newest"))
        ((place, kept),) = made.folders.items()
        judge = [made.python, f"{made.home}/bin/judge.py", "--root", made.home]
        seconds([*judge, "remove", "PyJWT"], os.environ)  # a copy without RECORD, which no pip replaces
        shutil.rmtree(kept)
        shutil.copytree(place, kept, symlinks=True)
        home = Path(kept) / "image"
        policy = dict(lists.policy(trapping.MANIFEST))
        steps: Mapping[str, dict[str, object]] = policy["steps"]  # type: ignore[assignment]
        rules = steps[STEP] | {"file": "requirements.txt"}
        (home / "policy.json").write_text(json.dumps(policy | {"steps": {"OTHERS": rules, STEP: rules}}))
        shutil.copy(LIST, home / "requirements.txt")
        held = policy["constraints"]
        lines = [f"{name}{rule['version']}\n" for name, rule in held.items()]  # type: ignore[attr-defined]
        with (home / "constraints.txt").open("a") as file:
            file.writelines(lines)
        environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
        environment["PIP_EXTRA_INDEX_URL"] = ""  # one index for both
        environment |= {"XDG_CACHE_HOME": f"{scratch}/cache", "PIP_CACHE_DIR": f"{scratch}/cache/pip"}
        pip = [made.python, "-m", "pip", "install", "--only-binary=:all:"]
        pip += ["-c", f"{made.home}/constraints.txt", "-r", f"{made.home}/requirements.txt"]
        found: dict[str, list[float]] = {"dry run": [], "plain install": [], "judged": []}
        for number in range(rounds + 1):
            in_turn.restore(dict(made.folders))
            dry, plain = seconds([*pip, "--dry-run"], environment), seconds(pip, environment)
            in_turn.restore(dict(made.folders))
            judged = seconds([*judge, "install", "OTHERS"], environment)
            print(
                f"{'cold' if number == 0 else number}: dry run {dry:.1f} s, plain {plain:.1f} s, judged {judged:.1f} s"
            )
            if number:
                for name, value in zip(found, (dry, plain, judged), strict=True):
                    found[name].append(value)
        count = len(json.loads((Path(made.home) / "plans" / "OTHERS.json").read_text())["distributions"])
    dry, plain, judged = (statistics.median(values) for values in found.values())
    ratio = judged / (dry + plain)
    print(f"{count} distributions, median of {rounds}: judged and installed exactly {judged:.1f} s,")
    print(f"dry run {dry:.1f} s and plain install {plain:.1f} s: ratio {ratio:.2f}, at most {LIMIT} wanted")


if __name__ == "__main__":
    main()
