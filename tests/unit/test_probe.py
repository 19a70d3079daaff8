"""The probe's verdict on hosts that are simulated: its own program, in real processes, over tests/gpu."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from simulated_host import RULES, observe, probe

from builder import verdict

if TYPE_CHECKING:
    from builder.observed import Probed

GPUS = range(1, 17)


def outcomes(probed: Probed) -> dict[str, str]:
    return {check.kind.removeprefix("gpu_"): check.outcome for check in probed.checks}


def detail(probed: Probed, kind: str) -> str:
    (check,) = (check for check in probed.checks if check.kind == f"gpu_{kind}")
    return "\n".join([check.detail, *check.notes])


def launches(folder: Path) -> list[str]:
    """The GPUs that something was launched on, one a launch."""
    log = folder / "host/log"
    return [line.split()[1] for line in log.read_text().splitlines()] if log.exists() else []


# Good hosts


@pytest.mark.parametrize("gpus", GPUS)
def test_a_good_host_of_any_size_passes(tmp_path: Path, gpus: int) -> None:
    found = probe(tmp_path, {"gpus": gpus}, ("gfx942",))
    wanted = dict.fromkeys(verdict.CHECKS, "passed") | ({"ipc": "could not run"} if gpus == 1 else {})
    assert outcomes(found) == wanted
    results = {(row["gpu"], row["mask"]): row["result"] for row in found.rows}
    if gpus > 1:
        longer = {(gpu, "reordered"): "same bytes" for gpu in range(gpus)} | {(gpus - 1, "offset"): "same bytes"}
        narrow = {(gpu, "narrow"): "error" if gpu else "same bytes" for gpu in range(gpus)}
        assert results == longer | narrow
    assert len(found.rows) == 2 * len(results), "by ROCm's two ways of IPC"
    assert Counter(launches(tmp_path)) == Counter(map(str, range(gpus))) + Counter([str(gpus - 1)] * (gpus > 1))


def test_one_gpu_is_too_few_to_say_what_colocate_does(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 1})
    assert found.sentence == (
        "whether colocate weight sync works here is not known: it takes 2 GPUs or more, one is here"
    )
    assert found.table == ""


def test_the_sentence_and_the_table_say_where_a_narrow_mask_fails(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 3}, private=True)
    assert found.sentence == (
        "colocate weight sync works here where an engine's mask lists its own GPUs and then the rest of the node; "
        "with its own GPUs alone it fails on GPU 1, 2"
    )
    assert found.table.splitlines()[:4] == [
        "GPU  mask       an engine sees  host, legacy=1  host, legacy=0  private, legacy=1  private, legacy=0",
        "0    narrow     0               ok              ok              ok                 ok",
        "0    reordered  0,1,2           ok              ok              ok                 ok",
        "1    narrow     1               error           error           error              error",
    ]


def test_the_json_holds_all_that_was_seen(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2})
    written = json.loads(found.json())
    assert written["sentence"] == found.sentence
    assert len(written["table"]) == len(found.rows)
    assert written["seen"]["host"]["counts"]["torch"]["devices"][1]["target"] == "gfx942"
    assert {check["outcome"] for check in written["checks"]} == {"passed"}


# The rules


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_a_source_and_turns_the_verdict_when_it_is_another(tmp_path: Path, name: str) -> None:
    rule = RULES[name]
    assert rule["source"]
    one, other = (probe(tmp_path, {**rule["host"], "rules": {name: rule[key]}}) for key in ("value", "mutant"))
    assert (outcomes(one), one.sentence) != (outcomes(other), other.sentence)


def test_on_cuda_a_narrow_mask_is_enough(tmp_path: Path) -> None:
    """CUDA's handle has no ordinal: it is opened on the importer's current device."""
    found = probe(tmp_path, {"gpus": 4, "rules": {"ordinal_out_of_range": "the importer's current device"}})
    assert found.sentence == (
        "colocate weight sync works here with either mask: this runtime does not need the longer one"
    )


# Broken hosts: what is wrong with it, which check says so, in which words

BROKEN: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no driver": ({"gpus": 2, "no_driver": True}, "nodes", "could not run", "kfd: no driver for AMD GPUs"),
    "no GPU": ({"gpus": 0}, "nodes", "could not run", "no /dev/dri/renderD*"),
    "a closed node": ({"gpus": 2, "closed": "kfd"}, "nodes", "failed", "kfd: Permission denied"),
    "a closed render node": ({"gpus": 2, "closed": "dri/renderD129"}, "nodes", "failed", "renderD129: Permission"),
    "no torch": ({"gpus": 2, "no_torch": True}, "counts", "could not run", "No module named 'torch'"),
    "torch for CUDA": ({"gpus": 2, "rocm": None}, "counts", "could not run", "2.12.0+cu130 is no ROCm build"),
    "a second amd_smi": ({"gpus": 2, "second_amd_smi": True}, "counts", "failed", "as torch: torch 0, HIP 2"),
    "no amdsmi": ({"gpus": 2, "no_amdsmi": True}, "counts", "passed", "No module named 'amdsmi'"),
    "a foreign GPU": (
        {"gpus": 3, "targets": {"1": "gfx1100"}},
        "targets",
        "failed",
        "the image was built for gfx942, GPU 1 is gfx1100",
    ),
    "torch built for others": (
        {"gpus": 2, "arch_list": ["gfx950"]},
        "targets",
        "failed",
        "its torch was built for gfx950, GPU 0 is gfx942",
    ),
    "a wrong product": ({"gpus": 2, "faults": {"1": "wrong product"}}, "products", "failed", "GPU 1: another result"),
    "no kernel": ({"gpus": 2, "faults": {"0": "launch fails"}}, "products", "failed", "invalid device function"),
    "a crash": ({"gpus": 2, "faults": {"1": "launch crashes"}}, "products", "failed", "GPU 1: ended by signal 6"),
    "no memory saver": ({"gpus": 2, "no_memory_saver": True}, "memory_saver", "could not run", "no torch_memory_saver"),
    "nothing freed": ({"gpus": 1, "rules": {"pause": "keeps it"}}, "memory_saver", "failed", "freed 0 (ROCm 7.14.0)"),
    "lost contents": (
        {"gpus": 1, "rules": {"resume": "takes the memory"}},
        "memory_saver",
        "failed",
        "3 of 3 tensors have other contents",
    ),
    "no IPC": (
        {"gpus": 2, "ipc": "none"},
        "ipc",
        "failed",
        "under the mask 0,1: HipError: HIP error: invalid argument",
    ),
    "no mapping": ({"gpus": 2, "ipc": "cannot attach"}, "ipc", "failed", "invalid device pointer"),
    "other memory": ({"gpus": 2, "ipc": "elsewhere"}, "ipc", "failed", "GPU 1 under the mask 1,0: other bytes"),
    "only the new IPC": ({"gpus": 2, "ipc": "new"}, "ipc", "failed", "LEGACY=0, host IPC namespace: 3 of 3"),
    "only the legacy IPC": ({"gpus": 2, "ipc": "legacy"}, "ipc", "passed", "LEGACY=0, host IPC namespace: 0 of 3"),
    "no IPC of its own": (
        {"gpus": 2, "private": {"ipc": "none"}},
        "ipc",
        "passed",
        "LEGACY=1, private IPC namespace: 0 of 3",
    ),
    "two masks": (
        {"gpus": 2, "env": {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}},
        "masks",
        "failed",
        "vLLM refuses to start",
    ),
    "a mask of a mask": (
        {"gpus": 4, "env": {"ROCR_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0,1"}},
        "masks",
        "failed",
        "ROCR_VISIBLE_DEVICES='1' masks first",
    ),
    "a mask of ROCr": ({"gpus": 2, "env": {"ROCR_VISIBLE_DEVICES": "1"}}, "masks", "passed", "Ray refuses"),
    "twice the same": ({"gpus": 2, "env": {"HIP_VISIBLE_DEVICES": "1,1"}}, "masks", "failed", "names a GPU twice"),
    "beyond the node": (
        {"gpus": 8, "env": {"HIP_VISIBLE_DEVICES": "6,7,8"}},
        "masks",
        "failed",
        "the mask names 3 GPUs, HIP counts 2",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_said_by_its_check(tmp_path: Path, name: str) -> None:
    host, kind, outcome, words = BROKEN[name]
    found = probe(tmp_path, host, ("gfx942",), private="private" in host)
    assert outcomes(found)[kind] == outcome
    assert words in detail(found, kind)


def test_a_hanging_gpu_costs_its_own_time_limit_and_no_more(tmp_path: Path) -> None:
    seen = observe(tmp_path / "host", {"gpus": 2, "faults": {"0": "launch hangs"}}, "--limit", "2")
    found = verdict.judge({"host": seen})
    assert outcomes(found) == dict.fromkeys(verdict.CHECKS, "passed") | {"products": "failed"}
    assert "GPU 0: did not end within 2 s" in detail(found, "products")


def test_nothing_is_launched_on_a_gpu_that_the_image_has_no_code_for(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 3, "targets": {"1": "gfx1100"}}, ("gfx942",))
    assert set(launches(tmp_path)) == {"0", "2"}
    assert "not tried on 1 that the image has no code for" in detail(found, "products")


def test_closed_nodes_stop_the_probe_before_torch_is_imported(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2, "closed": "kfd"})
    assert "counts" not in found.seen["host"]
    assert outcomes(found)["ipc"] == "could not run"


def test_a_mask_of_this_process_is_kept_in_the_engines_masks(tmp_path: Path) -> None:
    mask = {"HIP_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"}
    found = probe(tmp_path, {"gpus": 4, "env": mask})
    assert set(outcomes(found).values()) == {"passed"}
    assert {row["engine"] for row in found.rows if row["mask"] == "reordered"} == {"2,3", "3,2"}


def test_the_other_way_of_ipc_is_named_where_it_works(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2, "ipc": "new"})
    assert found.sentence.endswith("; with HSA_ENABLE_IPC_MODE_LEGACY=0 it would")


def test_where_the_way_of_ipc_is_not_set_that_is_a_third_setting(tmp_path: Path) -> None:
    unset = {"HSA_ENABLE_IPC_MODE_LEGACY": None}
    found = probe(tmp_path, {"gpus": 2, "target": "gfx1201", "env": unset})
    assert found.table.splitlines()[0].split("  ")[-3:] == ["host, legacy=unset", "host, legacy=0", "host, legacy=1"]
    assert {row["legacy"] for row in found.rows if row["own"]} == {"unset"}
    assert found.sentence.endswith("; with HSA_ENABLE_IPC_MODE_LEGACY=0 it would")


def test_other_bytes_are_the_worst_that_is_said(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2, "ipc": "elsewhere"})
    assert found.sentence == "colocate weight sync would load other weights than the trainer's here, without an error"
