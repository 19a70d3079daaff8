"""All benchmarks, or some: each a process of its own; results.json and docs/performance.md say what they came to.

Exit code 1 where a target falls short or a benchmark fails; what could not be measured is told, and is no failure.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.page import SHORT, Section, page, short, verdict
from builder.files import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "performance.md"

# In the order of the page; each is a module here, and each wants what stands beside it.
TABLE = {
    "command": "peers from the package index",
    "rendering": "",
    "matrix": "",
    "seal": "",
    "guard": "an index of packages",
    "preflight": "",
    "vllm_releases": "an index of packages",
    "bump_releases": "an index of packages",
    "overhead": "an engine",
    "verification": "an engine that has the rehearsal of rocm7.14",
    "image_size": "an engine that has the rehearsal of rocm7.14, an index of packages",
    "farm": "",
    "bumps": "an engine",
    "first_error": "an engine",
}


def main() -> None:
    table = "\n".join(f"  {name:<15}{needs}" for name, needs in TABLE.items())
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...",
        description=__doc__,
        epilog=f"benchmarks, and what each needs:\n{table}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="run these alone; what others came to stays")
    names = parser.parse_args().names
    if wrong := [name for name in names if name not in TABLE]:
        parser.error(f"no benchmark {wrong[0]!r}; known are {', '.join(TABLE)}")
    found = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    ran = {}
    for name in names or TABLE:
        ran[name] = found[name] = measured(name)
        # After each, so that one who stops the run keeps what is done.
        write(found)
    for line in short(ran):
        sys.stderr.write(f"{line}\n")
    fell = any("failed" in section or SHORT in map(verdict, section["targets"]) for section in ran.values())
    sys.exit(1 if fell else 0)


def measured(name: str) -> Section:
    """What a benchmark tells, or how it failed, with what a reader needs to judge that."""
    sys.stderr.write(f"{name} ...\n")
    load, started = os.getloadavg()[0], time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    told: dict[str, Any]
    try:
        told = json.loads(done.stdout) if done.returncode == 0 else {}
    except ValueError:
        told = {}
    if not told:
        failed = f"`python -m benchmarks.{name}` ended with {done.returncode} and told nothing"
        told = {"title": name, "how": "", "columns": [], "rows": [], "targets": [], "notes": [], "failed": failed}
    when = {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "commit": commit(),
        "seconds": round(time.monotonic() - started),
        "machine": f"{machine()}; load {load:.1f} when it began",
    }
    return {**told, "run": when}


def write(found: dict[str, Section]) -> None:
    ordered = {name: found[name] for name in TABLE if name in found}
    write_atomically(RESULTS, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    write_atomically(PAGE, page(ordered))


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine() -> str:
    """What it ran on: processor, cores, memory, kernel, Python."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = platform.release().partition("-")[0]
    processor = f"{os.cpu_count()} cores of {models[0]}" if models else f"{os.cpu_count()} cores"
    return f"{processor}, {memory:.0f} GiB, Linux {kernel}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
