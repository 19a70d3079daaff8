"""What real releases of vLLM define of what vime imports, and compile; and how long it takes to find out.

Fetches source distributions with this machine's pip configuration; nothing of them is run. With `--record` it writes
what it finds to tests/unit/vllm_releases.json, which the tests hold against upstream's facts; without, it compares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, run

ROUNDS, ALLOWED_S = 3, 5
TREES = ROOT / ".cache" / "vllm-releases"
RECORD = ROOT / "tests" / "unit" / "vllm_releases.json"
SCAN = """
import json, pathlib, sys
from builder.inside import imports
consumer, provider = map(pathlib.Path, sys.argv[1:])
found = imports.window([consumer], ["vllm"], [provider], {})
print(json.dumps([*found.missing, *found.notes]))
"""
ARGUMENTS = "FrontendArgs, make_arg_parser, validate_parsed_serve_args"
CONSUMERS = {
    "launchers": f"from vllm.entrypoints.launchers.cli_args import {ARGUMENTS}\n",
    "openai": f"from vllm.entrypoints.openai.cli_args import {ARGUMENTS}\n",
    "either": (
        "try:\n    from vllm.entrypoints.launchers.cli_args import FrontendArgs\n"
        "except ModuleNotFoundError:\n    from vllm.entrypoints.openai.cli_args import FrontendArgs\n"
    ),
    "weight transfer": (
        "from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory\n"
        "from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo\n"
        "from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo\n"
        "from vllm.distributed.weight_transfer.packed_tensor import pack_tensors\n"
    ),
    "the rest": (
        "from vllm.engine.arg_utils import AsyncEngineArgs\nfrom vllm.utils.system_utils import kill_process_tree\n"
    ),
}


# The vime that is pinned; it asks at one place.
PINNED = ("launchers", "weight transfer", "the rest")


class UnreachableError(Exception):
    """The index cannot be asked, or does not have a release."""


def fetched() -> dict[str, Path]:
    """The tree of each release that is recorded.

    Raises:
        UnreachableError: where one cannot be had.
    """
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    return {version: fetch(version, entry["sha256"], TREES) for version, entry in recorded.items()}


def fetch(version: str, digest: str, cache: Path) -> Path:
    """The tree of a release, from the index that pip is configured for."""
    tree = cache / f"vllm-{version}"
    if tree.is_dir():
        return tree
    try:
        name, content = _archive(version)
    except OSError as error:  # pip's own words for a network that fails are among them
        raise UnreachableError(f"the index cannot be asked for vllm {version}: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        sys.exit(f"vllm {version}: sha256 is {found}, wanted {digest}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        path = Path(scratch) / name
        path.write_bytes(content)
        with tarfile.open(path) as archive:
            archive.extractall(scratch, filter="data")
        (Path(scratch) / f"vllm-{version}").rename(tree)
    return tree


def _archive(version: str) -> tuple[str, bytes]:
    """The name and the bytes of a source distribution."""
    from pip._internal.commands import create_command  # noqa: PLC0415 - pip's only way to fetch without running setup.py

    command = create_command("download")
    options, _ = command.parser.parse_args(["--no-binary=:all:"])
    with command.main_context():
        session = command.get_default_session(options)  # type: ignore[attr-defined]
        finder = command._build_package_finder(options, session)  # type: ignore[attr-defined]  # noqa: SLF001
        links = [
            candidate.link
            for candidate in finder.find_all_candidates("vllm")
            if str(candidate.version) == version and candidate.link.filename.endswith(".tar.gz")
        ]
        if not links:
            raise UnreachableError(f"this machine's index has no source distribution of vllm {version}")
        return links[0].filename, session.get(links[0].url_without_fragment).content


def ask(tree: Path, consumer: str) -> tuple[list[str], float]:
    """What a release lacks of what a consumer imports, and the seconds that a cold process needs to say so."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "vime").mkdir()
        (Path(scratch) / "vime" / "main.py").write_text(consumer)
        started = time.monotonic()
        said = run([sys.executable, "-c", SCAN, f"{scratch}/vime", tree])
    return list(json.loads(said)), time.monotonic() - started


def modules(tree: Path) -> list[str]:
    """The modules that its setup.py compiles, on one platform or another."""
    text = (tree / "setup.py").read_text(encoding="utf-8")
    return sorted(set(re.findall(r'CMakeExtension\(\s*name="vllm\.(\w+)"', text)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    try:
        trees = fetched()
    except UnreachableError as reason:
        report([], None, None, [f"{reason}."])
        return
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    found, rows, slowest = {}, [], 0.0
    for version, tree in trees.items():
        says = {name: ask(tree, text)[0] for name, text in CONSUMERS.items()}
        seconds = median(ask(tree, "".join(CONSUMERS.values()))[1] for _ in range(ROUNDS))
        slowest = max(slowest, seconds)
        lacks = sum(len(says[name]) for name in PINNED)
        rows.append([version, sum(1 for _ in (tree / "vllm").rglob("*.py")), lacks, round(seconds, 2)])
        found[version] = {"sha256": recorded[version]["sha256"], "modules": modules(tree), "says": says}
        sys.stderr.write(f"vllm {version}: everything asked in {seconds:.2f} s\n")
    if given.record:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        recorded = found
    report(rows, slowest, sum(found[version] != recorded[version] for version in found), [])


def report(rows: list[list[object]], slowest: float | None, others: int | None, notes: list[str]) -> None:
    tell(
        title="The API window over real releases of vLLM",
        how="Source distributions of the package index, of which nothing is run; the consumer imports what vime "
        "imports from vLLM, at all places that it had. A new process each time, with nothing cached; "
        f"medians of {ROUNDS}.",
        columns=["release", "files of Python", "names that the pinned vime lacks in it", "everything asked (s)"],
        rows=rows,
        targets=[
            Target(
                what="the window over the slowest release, cold",
                value=None if slowest is None else round(slowest, 2),
                allowed=ALLOWED_S,
                unit="s",
            ),
            Target(what="releases that say otherwise than is recorded", value=others, allowed=0, unit="releases"),
        ],
        notes=notes,
    )


if __name__ == "__main__":
    main()
