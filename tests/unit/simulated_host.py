"""The probe on a simulated host: its own program in real processes, over the stand-in runtime of tests/gpu."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from builder import verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.observed import Probed, Seen

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "builder/inside/probe.py"
RUNTIME = ROOT / "tests/gpu/runtime"
RULES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "tests/gpu/rules.yaml").read_text(encoding="utf-8"))


def prepare(folder: Path, host: Mapping[str, Any]) -> dict[str, str]:
    """Lay a host down: `gpus`, and whatever is not as it should be. The environment of its processes."""
    shutil.rmtree(folder, ignore_errors=True)
    devices = folder / "dev"
    (devices / "dri").mkdir(parents=True)
    if not host.get("no_driver"):
        (devices / "kfd").touch()
        for number in range(host["gpus"]):
            (devices / "dri" / f"renderD{128 + number}").touch()
    rules = {name: rule["value"] for name, rule in RULES.items()} | host.get("rules", {})
    (folder / "host.json").write_text(json.dumps({"target": "gfx942", **host, "rules": rules}))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(RUNTIME),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SIMULATED_HOST": str(folder / "host.json"),
        "HSA_ENABLE_IPC_MODE_LEGACY": "1",
        **host.get("env", {}),
    }
    return {name: value for name, value in environment.items() if value is not None}


def observe(folder: Path, host: Mapping[str, Any], *words: str) -> Seen:
    """What the probe sees of a host."""
    environment = prepare(folder, host)
    devices = folder / "dev"
    command = [sys.executable, str(PROGRAM), "--devices", str(devices), "--limit", "20", *words]
    if "closed" in host:
        (devices / host["closed"]).chmod(0)
        if not os.geteuid():  # whom a mode stops only without these
            command = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    seen: Seen = json.loads(done.stdout)
    return seen


def count(folder: Path, host: Mapping[str, Any]) -> dict[str, Any]:
    """What torch and HIP count there."""
    command = [sys.executable, str(PROGRAM.with_name("gpu_trial.py")), "count", "torch"]
    done = subprocess.run(command, env=prepare(folder, host), capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout.partition("@trial ")[2])
    return found


def probe(folder: Path, host: Mapping[str, Any], targets: tuple[str, ...] = (), *, private: bool = False) -> Probed:
    """The verdict; of a container with an IPC namespace of its own too, where that is asked for."""
    words = ("--targets", ";".join(targets))
    seen = {"host": observe(folder / "host", host, *words)}
    if private:
        seen["private"] = observe(folder / "private", {**host, **host.get("private", {})}, *words, "--only-ipc")
    return verdict.judge(seen, targets)
