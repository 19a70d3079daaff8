"""What real releases of vLLM define of what vime imports, and compile; and how long it takes to find out.

Fetches source distributions with this machine's pip configuration; nothing of them is run. With `--record` it writes
what it finds to tests/unit/vllm_releases.json, which the tests hold against upstream's facts; without, it compares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
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


def fetch(version: str, digest: str, cache: Path) -> Path:
    """The tree of a release, from the index that pip is configured for."""
    from pip._internal.commands import create_command  # noqa: PLC0415 - pip's only way to fetch without running setup.py

    tree = cache / f"vllm-{version}"
    if tree.is_dir():
        return tree
    command = create_command("download")
    options, _ = command.parser.parse_args(["--no-binary=:all:"])
    with command.main_context():
        session = command.get_default_session(options)  # type: ignore[attr-defined]
        finder = command._build_package_finder(options, session)  # type: ignore[attr-defined]  # noqa: SLF001
        (link,) = (
            candidate.link
            for candidate in finder.find_all_candidates("vllm")
            if str(candidate.version) == version and candidate.link.filename.endswith(".tar.gz")
        )
        content = session.get(link.url_without_fragment).content
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        sys.exit(f"vllm {version}: sha256 is {found}, wanted {digest}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        path = Path(scratch) / link.filename
        path.write_bytes(content)
        with tarfile.open(path) as archive:
            archive.extractall(scratch, filter="data")
        (Path(scratch) / f"vllm-{version}").rename(tree)
    return tree


def ask(tree: Path, consumer: str) -> tuple[list[str], float]:
    """What a release lacks of what a consumer imports, and the seconds that a cold process needs to say so."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "vime").mkdir()
        (Path(scratch) / "vime" / "main.py").write_text(consumer)
        started = time.monotonic()
        done = subprocess.run([sys.executable, "-c", SCAN, f"{scratch}/vime", tree], stdout=subprocess.PIPE, check=True,
                              cwd=ROOT)  # fmt: skip
    return list(json.loads(done.stdout)), time.monotonic() - started


def modules(tree: Path) -> list[str]:
    """The modules that its setup.py compiles, on one platform or another."""
    text = (tree / "setup.py").read_text(encoding="utf-8")
    return sorted(set(re.findall(r'CMakeExtension\(\s*name="vllm\.(\w+)"', text)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "vllm-releases")
    given = parser.parse_args()
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    found = {}
    for version, entry in recorded.items():
        tree = fetch(version, entry["sha256"], given.cache)
        answers = {name: ask(tree, text) for name, text in CONSUMERS.items()}
        files = sum(1 for _ in (tree / "vllm").rglob("*.py"))
        seconds = ask(tree, "".join(CONSUMERS.values()))[1]
        print(f"vllm {version}: {files} files, everything asked in {seconds:.2f} s")
        found[version] = {
            "sha256": entry["sha256"],
            "modules": modules(tree),
            "says": {name: lines for name, (lines, _) in answers.items()},
        }
    if given.record:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    elif found != recorded:
        sys.exit(f"{RECORD} says otherwise: --record writes it anew")


if __name__ == "__main__":
    main()
