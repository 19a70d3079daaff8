"""What the scanner says of real releases of vLLM is what upstream's own history says.

The record is made by benchmarks/vllm_releases.py from the releases' source distributions.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import REAL

from builder import manifest

RECORD = json.loads((Path(__file__).parent / "vllm_releases.json").read_text(encoding="utf-8"))
CLI = "vllm.entrypoints.{}.cli_args.FrontendArgs"
# Where FrontendArgs is defined, and what of the weight transfer is not there yet: no other release is known to differ.
FACTS: dict[str, tuple[str, list[str]]] = {
    "0.27.1": ("openai", ["vllm.distributed.weight_transfer.nccl_engine.NCCLTrainerInitInfo"]),
    "0.28.0": ("openai", []),
    "0.29.0": ("launchers", []),
    "0.30.0": ("launchers", []),
    "0.31.0": ("launchers", []),
}


def missing(lines: list[str]) -> list[str]:
    return [line.partition(", imported at ")[0] for line in lines if not line.startswith("alternative taken")]


def test_the_record_is_of_these_releases() -> None:
    assert set(RECORD) == set(FACTS)


@pytest.mark.parametrize("version", sorted(FACTS))
def test_a_release_has_its_arguments_in_one_place_and_the_other_says_where(version: str) -> None:
    place, _ = FACTS[version]
    (other,) = {"openai", "launchers"} - {place}
    says = RECORD[version]["says"]
    assert says[place] == []
    assert missing(says[other])[0] == CLI.format(other)
    assert says[other][0].endswith(f"it is now in {CLI.format(place).rpartition('.')[0]}")
    assert len(says[other]) == 3, "the parser and its validation moved along"


@pytest.mark.parametrize("version", sorted(FACTS))
def test_a_consumer_that_knows_both_places_takes_the_one_that_is_there(version: str) -> None:
    (line,) = RECORD[version]["says"]["either"]
    assert re.match(rf"alternative taken: {re.escape(CLI.format(FACTS[version][0]))},", line)


@pytest.mark.parametrize("version", sorted(FACTS))
def test_the_weight_transfer_lacks_what_upstream_added_later(version: str) -> None:
    says = RECORD[version]["says"]
    assert (missing(says["weight transfer"]), says["the rest"]) == (FACTS[version][1], [])


@pytest.mark.parametrize("version", sorted(FACTS))
def test_a_release_compiles_the_modules_that_the_manifest_says_have_device_code(version: str) -> None:
    vllm = manifest.load(REAL).sources["vllm"]
    assert vllm.device_code
    assert set(vllm.device_code) <= set(RECORD[version]["modules"])


UNREACHED = """
import pathlib, sys
from benchmarks import {name}, vllm_releases
vllm_releases.TREES = pathlib.Path(sys.argv.pop())
{name}.main()
"""


@pytest.mark.parametrize("name", ["vllm_releases", "bump_releases"])
def test_where_no_index_has_the_releases_nothing_is_measured_and_the_reason_is_told(name: str, tmp_path: Path) -> None:
    environment = os.environ | {
        "PIP_INDEX_URL": tmp_path.as_uri(),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_CONFIG_FILE": os.devnull,
    }
    command = [sys.executable, "-c", UNREACHED.format(name=name), str(tmp_path / "trees")]
    done = subprocess.run(command, cwd=REAL.parents[1], env=environment, stdout=subprocess.PIPE, check=True)
    told = json.loads(done.stdout)
    assert told["rows"] == []
    assert {target["value"] for target in told["targets"]} == {None}
    assert "no source distribution of vllm " in told["notes"][0]
