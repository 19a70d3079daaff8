"""The probe's verdict on hosts that are simulated: its own program, in real processes, over tests/gpu."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from simulated_host import ROOT, RULES, count, observe, probe

from builder import probing, verdict

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


# The interpreter


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [(("absent", "without", "with", "other"), "with"), (("absent", "without"), "without"), (("other",), "other")],
)
def test_the_first_interpreter_with_a_torch_runs_the_probe(
    tmp_path: Path, pythons: tuple[str, ...], chosen: str
) -> None:
    for name, has_torch in (("without", False), ("with", True), ("other", True)):
        answer = f'[ "$1" != -c ] || exit {int(not has_torch)}'
        (tmp_path / name).write_text(f'#!/bin/sh\n{answer}\nprintf "%s|" {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    words = [*(str(tmp_path / name) for name in pythons), "--", "probe.py", "--targets", "gfx942;gfx950"]
    done = subprocess.run(["sh", "-c", probing.START, "sh", *words], capture_output=True, text=True, check=True)
    assert done.stdout == f"{chosen}|probe.py|--targets|gfx942;gfx950|"


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
    fills = ["0"] * 3
    assert Counter(launches(tmp_path)) == Counter([*map(str, range(gpus)), *[str(gpus - 1)] * (gpus > 1), *fills])


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
    assert found.table.splitlines()[:5] == [
        "                namespace   host   host   private  private",
        "GPU  mask       legacy IPC  1      0      1        0",
        "0    narrow     0           ok     ok     ok       ok",
        "0    reordered  0-2         ok     ok     ok       ok",
        "1    narrow     1           error  error  error    error",
    ]


def test_the_document_shows_what_the_probe_prints(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 4}, private=True)
    written = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    assert f"```\n{found.table}\n\n{click.wrap_text(found.sentence, width=80)}\n```" in written


def test_the_table_of_16_gpus_in_three_ways_of_ipc_is_no_wider_than_a_terminal(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 16, "env": {"HSA_ENABLE_IPC_MODE_LEGACY": None}}, private=True)
    lines = found.table.splitlines()
    assert len(lines) == 2 + 2 * 16 + 1
    assert lines[1].split()[-6:] == ["unset", "0", "1", "unset", "0", "1"]
    assert lines[-2].split()[:3] == ["15", "reordered", "15,0-14"]
    assert max(map(len, lines)) <= 80


def test_the_json_holds_all_that_was_seen(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2})
    written = json.loads(found.json())
    assert written["sentence"] == found.sentence
    assert len(written["table"]) == len(found.rows)
    assert written["seen"]["host"]["counts"]["torch"]["devices"][1]["target"] == "gfx942"
    assert {check["outcome"] for check in written["checks"]} == {"passed"}


def test_what_the_machine_says_of_itself_is_seen_as_it_is(tmp_path: Path) -> None:
    """Nobody judges these: they are for whoever reads the report."""
    seen = observe(tmp_path / "host", {"gpus": 0, "env": {"HSA_ENABLE_IPC_MODE_LEGACY": "0"}})
    assert seen["legacy"] == "0"
    assert seen["groups"] == sorted({os.getegid(), *os.getgroups()})
    assert seen["namespaces"]["ipc"] == str(Path("/proc/self/ns/ipc").readlink())
    assert seen["namespaces"]["pid"] == str(Path("/proc/self/ns/pid").readlink())
    asked = subprocess.run(["df", "-B1", "--output=size", "/dev/shm"], capture_output=True, text=True, check=True)
    assert seen["namespaces"]["shm_bytes"] == int(asked.stdout.split()[-1])
    assert observe(tmp_path / "host", {"gpus": 0, "env": {"HSA_ENABLE_IPC_MODE_LEGACY": None}})["legacy"] is None


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
    "no amdsmi": ({"gpus": 2, "no_amdsmi": True}, "counts", "passed", "could not run: ModuleNotFoundError"),
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
    "torch crashes": ({"gpus": 2, "torch": "crashes"}, "counts", "failed", "as torch: ended by signal 6"),
    "torch is broken": ({"gpus": 2, "torch": "is broken"}, "counts", "failed", "as torch: ImportError: libMIOpen.so"),
    "amdsmi is broken": ({"gpus": 2, "amdsmi": "is broken"}, "counts", "failed", "then torch: ImportError: libz3"),
    "no memory saver": ({"gpus": 2, "no_memory_saver": True}, "memory_saver", "could not run", "no torch_memory_saver"),
    "nothing freed": ({"gpus": 1, "rules": {"pause": "keeps it"}}, "memory_saver", "failed", "freed 0 (ROCm 7.14.0)"),
    "small ones not freed": (
        {"gpus": 1, "saver": "frees large ones"},
        "memory_saver",
        "failed",
        "a pause of 1048577 bytes freed 0 (ROCm 7.14.0)\na pause of 4097 bytes freed 0",
    ),
    "nothing taken again": (
        {"gpus": 1, "saver": "takes nothing again"},
        "memory_saver",
        "failed",
        "a resume of 4097 bytes took 0",
    ),
    "a saver that crashes": ({"gpus": 1, "saver": "crashes"}, "memory_saver", "failed", "ended by signal 6"),
    "lost contents": (
        {"gpus": 1, "rules": {"resume": "takes the memory"}},
        "memory_saver",
        "failed",
        "4097 bytes have other contents after a resume",
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
    "no IPC namespace of its own": (
        {"gpus": 2, "private": {"torch": "crashes"}},
        "ipc",
        "passed",
        "private IPC namespace: could not run: torch could not be asked: ended by signal 6",
    ),
}


# Masks: the variables, the outcome, and the words for it; all on a node of four

ROCR, OPENCL, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
OPENMP = "OMP_DEFAULT_DEVICE"
FIRST, LAST = "GPU-0000000000000000", "GPU-0000000000000003"
MASKS: list[tuple[dict[str, str], str, str]] = [
    ({}, "passed", f"not set: {ROCR}, {OPENCL}, {HIP}"),
    ({HIP: "2,3", CUDA: "2,3"}, "passed", f"not set: {ROCR}, {OPENCL}, {OPENMP}"),
    ({CUDA: "3,0"}, "passed", "CUDA_VISIBLE_DEVICES='3,0'"),
    ({HIP: "0", CUDA: "1"}, "failed", "vLLM refuses to start"),
    ({HIP: "0,1", CUDA: "0, 1"}, "failed", "vLLM refuses to start"),
    ({ROCR: "1"}, "passed", "Ray refuses to run with it"),
    ({ROCR: "1", CUDA: "0,1"}, "failed", "ROCR_VISIBLE_DEVICES='1' masks first"),
    ({ROCR: "0,1", HIP: "1"}, "failed", "masks first"),
    ({ROCR: "0,1", OPENCL: "1"}, "failed", "masks first"),
    ({ROCR: "0, 1"}, "passed", "ROCR_VISIBLE_DEVICES='0, 1'"),
    ({ROCR: ""}, "failed", "ROCR_VISIBLE_DEVICES='' hides every GPU"),
    ({ROCR: "0,7"}, "failed", "the mask names 2 GPUs, HIP counts 1"),
    ({HIP: ""}, "failed", "HIP_VISIBLE_DEVICES='' is no mask to HIP and no GPU to torch"),
    ({CUDA: ""}, "failed", "CUDA_VISIBLE_DEVICES='' is no mask to HIP and no GPU to torch"),
    ({HIP: " "}, "failed", "' ' names no GPU"),
    ({HIP: "1,1"}, "failed", "names a GPU twice"),
    ({ROCR: "1,1"}, "failed", "names a GPU twice"),
    ({HIP: "-1"}, "failed", "'-1' names no GPU"),
    ({HIP: "0,-1,1"}, "failed", "'-1' names no GPU, and it hides whatever stands behind it"),
    ({HIP: "0, 1"}, "failed", "' 1' names no GPU"),
    ({HIP: "0,,1"}, "failed", "'' names no GPU"),
    ({HIP: "00,1"}, "failed", "'00' names no GPU"),
    ({HIP: "0,x"}, "failed", "'x' names no GPU"),
    ({HIP: "2,3,4"}, "failed", "the mask names 3 GPUs, HIP counts 2"),
    ({HIP: f"{FIRST},{LAST}"}, "passed", f"HIP_VISIBLE_DEVICES='{FIRST},{LAST}'"),
    ({HIP: f"{LAST},{LAST}"}, "failed", "names a GPU twice"),
    ({HIP: f"{FIRST},GPU-00000000000000ff"}, "failed", "the mask names 2 GPUs, HIP counts 1"),
    ({HIP: f"0,{LAST}"}, "failed", "has numbers and UUIDs: torch stops where the kind changes"),
    ({OPENCL: "0"}, "passed", "by HIP's source it is for OpenCL alone"),
    ({OPENCL: "0,1", HIP: "0,1"}, "passed", "GPU_DEVICE_ORDINAL='0,1'"),
    ({OPENCL: "0", CUDA: "1"}, "failed", "GPU_DEVICE_ORDINAL='0' and '1' for HIP: OpenCL sees other GPUs"),
    ({OPENCL: "1,1"}, "failed", "names a GPU twice"),
    ({OPENMP: "3"}, "passed", "OMP_DEFAULT_DEVICE='3'"),
    ({OPENMP: "2", HIP: "0,1"}, "failed", "OMP_DEFAULT_DEVICE='2' is beyond the 2 GPUs that are visible"),
]


@pytest.mark.parametrize(("masks", "outcome", "words"), MASKS)
def test_masks_are_shown_and_what_contradicts_itself_fails(
    tmp_path: Path, masks: dict[str, str], outcome: str, words: str
) -> None:
    nodes = [{"path": path, "gid": 44} for path in ("/dev/kfd", "/dev/dri/renderD128")]
    shown = {name: masks.get(name) for name in (ROCR, OPENCL, HIP, CUDA, OPENMP)}
    counts = {"torch": count(tmp_path / "host", {"gpus": 4, "env": masks})}
    seen = {"host": {"nodes": nodes, "masks": shown, "counts": counts}}
    found, problems, notes = verdict.CHECKS["masks"][2](seen, (), ())
    said = "\n".join([problems, *notes])
    assert found == outcome, said
    assert words in said
    assert all(f"{name}={value!r}" in said for name, value in masks.items())


def test_a_mask_says_nothing_of_a_host_without_a_gpu(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 0, "no_driver": True, "env": {HIP: "0"}})
    assert set(outcomes(found).values()) == {"could not run"}
    contradicting = probe(tmp_path, {"gpus": 0, "no_driver": True, "env": {HIP: "0", CUDA: "1"}})
    assert outcomes(contradicting)["masks"] == "failed"


def test_the_fifth_of_the_masks_is_the_one_of_openmp(tmp_path: Path) -> None:
    assert list(observe(tmp_path / "host", {"gpus": 0})["masks"]) == [ROCR, OPENCL, HIP, CUDA, OPENMP]


@pytest.mark.parametrize(
    ("mask", "engines"),
    [("2,3", {"2,3", "3,2"}), ("3,3,1", set()), ("3,x,1", set()), ("2,1,9", {"2,1", "1,2"})],
)
def test_no_engine_is_given_a_gpu_that_our_own_mask_hides(tmp_path: Path, mask: str, engines: set[str]) -> None:
    found = probe(tmp_path, {"gpus": 4, "env": {HIP: mask, CUDA: mask}})
    assert {row["engine"] for row in found.rows if row["mask"] == "reordered"} == engines
    assert set(launches(tmp_path)) <= set(mask.split(","))


def test_uuids_leave_no_numbers_for_an_engine_s_mask(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 4, "env": {HIP: f"{LAST},{FIRST}"}})
    assert outcomes(found) == dict.fromkeys(verdict.CHECKS, "passed") | {"ipc": "could not run"}
    assert set(launches(tmp_path)) == {"3", "0"}
    assert found.sentence == (
        "whether colocate weight sync works here is not known: the mask has UUIDs, and an engine's has numbers"
    )


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


def test_a_torch_that_hangs_has_failed_and_nothing_else_was_tried(tmp_path: Path) -> None:
    found = verdict.judge({"host": observe(tmp_path / "host", {"gpus": 2, "torch": "hangs"}, "--limit", "2")})
    tried = {"nodes": "passed", "masks": "passed", "counts": "failed"}
    assert outcomes(found) == dict.fromkeys(verdict.CHECKS, "could not run") | tried
    assert "imported as torch: did not end within 6 s" in detail(found, "counts")


def test_an_exporter_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    found = verdict.judge({"host": observe(tmp_path / "host", {"gpus": 2, "ipc": "hangs"}, "--limit", "2")})
    assert outcomes(found) == dict.fromkeys(verdict.CHECKS, "passed") | {"ipc": "failed"}
    assert {row["detail"] for row in found.rows} == {"did not end within 2 s"}
    assert "export" in found.table


def test_nothing_is_left_in_the_memory_that_processes_share(tmp_path: Path) -> None:
    """With the host's IPC namespace that is the host's own; torch's file there outlives an exporter that is killed."""
    found = probe(tmp_path, {"gpus": 3})
    assert outcomes(found)["ipc"] == "passed"
    number = (tmp_path / "host").stat().st_ino
    assert not list(Path("/dev/shm").glob(f"torch_*_{number}_*"))


def test_how_long_each_check_took_is_in_the_report(tmp_path: Path) -> None:
    seen = observe(tmp_path / "host", {"gpus": 2})
    took = {check.kind: check.seconds for check in verdict.judge({"host": seen}).checks}
    assert took["gpu_ipc"] == seen["seconds"]["ipc"] > 0


def test_nothing_is_launched_on_a_gpu_that_the_image_has_no_code_for(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 3, "targets": {"1": "gfx1100"}}, ("gfx942",))
    assert set(launches(tmp_path)) == {"0", "2"}
    assert "not tried on 1 that the image has no code for" in detail(found, "products")


def test_a_foreign_first_gpu_leaves_the_memory_saver_to_the_next(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2, "targets": {"0": "gfx1100"}}, ("gfx942",))
    assert set(launches(tmp_path)) == {"1"}
    assert outcomes(found)["memory_saver"] == "passed"


def test_nothing_at_all_is_launched_where_every_gpu_is_foreign(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2}, ("gfx90a",))
    assert launches(tmp_path) == []
    tried = {"targets": "failed", "products": "could not run", "memory_saver": "could not run"}
    assert outcomes(found) == dict.fromkeys(verdict.CHECKS, "passed") | tried


def test_closed_nodes_stop_the_probe_before_torch_is_imported(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2, "closed": "kfd"})
    assert "counts" not in found.seen["host"]
    assert outcomes(found)["ipc"] == "could not run"


def test_the_other_way_of_ipc_is_named_where_it_works(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2, "ipc": "new"})
    assert found.sentence.endswith("; with HSA_ENABLE_IPC_MODE_LEGACY=0 it would")


def test_where_the_way_of_ipc_is_not_set_that_is_a_third_setting(tmp_path: Path) -> None:
    unset = {"HSA_ENABLE_IPC_MODE_LEGACY": None}
    found = probe(tmp_path, {"gpus": 2, "target": "gfx1201", "env": unset})
    assert [line.split()[-3:] for line in found.table.splitlines()[:2]] == [["host"] * 3, ["unset", "0", "1"]]
    assert {row["legacy"] for row in found.rows if row["own"]} == {"unset"}
    assert found.sentence.endswith("; with HSA_ENABLE_IPC_MODE_LEGACY=0 it would")


def test_other_bytes_are_the_worst_that_is_said(tmp_path: Path) -> None:
    found = probe(tmp_path, {"gpus": 2, "ipc": "elsewhere"})
    assert found.sentence == "colocate weight sync would load other weights than the trainer's here, without an error"
