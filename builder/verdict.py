"""What the probe's observations of a GPU host come to: checks, and one plain sentence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from builder import masks as masking
from builder.observed import GOOD, SETTINGS, Probed, Row, Seen
from builder.report import COULD_NOT_RUN, FAILED, PASSED, Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

Found = tuple[Outcome, str, tuple[str, ...]]  # outcome, detail, notes
NO_CODE = "no GPU is one that the image has code for"
ENOUGH = 0.9  # of the bytes asked for: the memory saver works in whole chunks
LEGACY = "HSA_ENABLE_IPC_MODE_LEGACY"


def judge(seen: Mapping[str, Seen], targets: tuple[str, ...] = ()) -> Probed:
    """The verdict on what was seen in each setting.

    Args:
        targets: the GPU targets in the image's label; where it has none, those that its torch names.
    """
    host = seen["host"]
    known = targets or tuple(host.get("counts", {}).get("torch", {}).get("targets", ()))
    rows = tuple({**row, "ipc": name} for name in SETTINGS for row in seen.get(name, {}).get("ipc", ()))
    found = {kind: judges(seen, known, rows) for kind, (_, _, judges) in CHECKS.items()}
    checks = tuple(
        Check(
            name=CHECKS[kind][0],
            kind=f"gpu_{kind}",
            outcome=outcome,
            detail=detail,
            hint=CHECKS[kind][1],
            seconds=host["seconds"].get(kind, 0.0),
            notes=notes,
        )
        for kind, (outcome, detail, notes) in found.items()
    )
    return Probed(
        seen=seen, targets=known or ("unknown",), checks=checks, rows=rows, sentence=_sentence(found["ipc"], rows)
    )


def _nodes(seen: Mapping[str, Seen], _: tuple[str, ...], __: Sequence[Row]) -> Found:
    host = seen["host"]
    if reason := _no_node(host):
        return COULD_NOT_RUN, reason, ()
    alike: dict[str, list[str]] = {}
    for node in host["nodes"]:
        alike.setdefault(f"group {node['gid']}, mode {node['mode']}", []).append(node["path"])
    shown = [
        f"{paths[0] if len(paths) == 1 else f'{paths[0]} to {paths[-1]} ({len(paths)})'}: {how}"
        for how, paths in alike.items()
    ]
    ours = f"our groups are {', '.join(map(str, host['groups']))}"
    if closed := [f"{node['path']}: {node['problem']}" for node in host["nodes"] if node["problem"]]:
        return FAILED, "\n".join([*closed, *shown, ours]), ()
    return PASSED, "", (*shown, ours)


def _no_node(host: Seen) -> str:
    """Why there is no GPU to try anything on, as far as device nodes tell."""
    kfd, *render = host["nodes"]
    if "gid" not in kfd:
        return f"no {kfd['path']}: no driver for AMD GPUs, or the container was not given its devices"
    if not render:
        return "no /dev/dri/renderD*: the driver has no GPU, or the container was not given it"
    return ""


def _masks(seen: Mapping[str, Seen], _: tuple[str, ...], __: Sequence[Row]) -> Found:
    host = seen["host"]
    masks = {name: value for name, value in host["masks"].items() if value is not None}
    unset = [name for name in host["masks"] if name not in masks]
    shown = [f"{name}={value!r}" for name, value in masks.items()]
    shown += [f"not set: {', '.join(unset[at : at + 3])}" for at in range(0, len(unset), 3)]
    counted = host.get("counts", {}).get("torch", {}).get("hip")
    if faults := list(masking.faults(masks, counted)):
        return FAILED, "\n".join([*faults, *shown]), ()
    if reason := _no_node(host):
        return COULD_NOT_RUN, f"nothing contradicts itself, and nothing can be counted: {reason}", ()
    return PASSED, "", (*masking.remarks(masks), *shown)


def _obstacle(host: Seen) -> str:
    """Why nothing can be tried on the GPUs; empty where something can."""
    if reason := _no_node(host):
        return reason
    if any(node["problem"] for node in host["nodes"]):
        return "the device nodes cannot be opened"
    counts = host["counts"]["torch"]
    if "error" in counts:
        return f"torch could not be asked: {counts['error']}"
    if not counts["rocm"]:
        return f"torch {counts['version']} is no ROCm build"
    return "" if counts["devices"] else f"torch counts {counts['torch']} GPUs, HIP {counts['hip']}"


def _counts(seen: Mapping[str, Seen], _: tuple[str, ...], __: Sequence[Row]) -> Found:
    host = seen["host"]
    counts = host.get("counts", {})
    first = counts.get("torch", {})
    if not counts or first.get("rocm", "") is None or "No module named 'torch'" in first.get("error", ""):
        return COULD_NOT_RUN, _obstacle(host), ()
    lines: list[str] = []
    wrong: list[str] = []
    for order, found in counts.items():
        told = found.get("error") or f"torch {found['torch']}, HIP {found['hip']}"
        absent = "No module named 'amdsmi'" in told
        line = f"imported as {order.replace(',', ', then ')}: {'could not run: ' * absent}{told}"
        alike = found.get("torch") == found.get("hip") == first.get("hip")
        (lines if absent or (alike and found.get("hip")) else wrong).append(line)
    if wrong:
        nodes = f"{len(host['nodes']) - 1} render nodes are there"
        return FAILED, "\n".join([*wrong, nodes]), ()
    return PASSED, "", tuple(lines)


def _targets(seen: Mapping[str, Seen], known: tuple[str, ...], _: Sequence[Row]) -> Found:
    host = seen["host"]
    if reason := _obstacle(host):
        return COULD_NOT_RUN, reason, ()
    gpus = host["counts"]["torch"]["devices"]
    torch = host["counts"]["torch"]["targets"]
    wrong = [
        f"{' and '.join(who)} built for {', '.join(names)}, GPU {gpu['ordinal']} is {gpu['target']} ({gpu['name']})"
        for gpu in gpus
        for who, names in ((["the image was"], known), (["its torch was"], torch))
        if gpu["target"] not in names
    ]
    if wrong:
        return FAILED, "\n".join(dict.fromkeys(wrong)), ()
    return PASSED, "", tuple(f"GPU {gpu['ordinal']}: {gpu['target']}, {gpu['name']}" for gpu in gpus)


def _products(seen: Mapping[str, Seen], _: tuple[str, ...], __: Sequence[Row]) -> Found:
    host = seen["host"]
    if reason := _obstacle(host):
        return COULD_NOT_RUN, reason, ()
    if not host["products"]:
        return COULD_NOT_RUN, NO_CODE, ()
    wrong: list[str] = []
    right: list[str] = []
    for trial in host["products"]:
        where = f"GPU {trial['ordinal']}" if trial["engine"] is None else f"device 0 under the mask {trial['engine']}"
        told = trial.get("error") or ("as on the CPU" if trial["equal"] else "another result than on the CPU")
        (right if trial.get("equal") else wrong).append(f"{where}: {told}")
    left = len(host["counts"]["torch"]["devices"]) - sum(trial["engine"] is None for trial in host["products"])
    notes = (f"not tried on {left} that the image has no code for",) if left else ()
    alone = () if any(trial["engine"] for trial in host["products"]) else (f"no other mask: {_unmasked(host)}",)
    return (FAILED, "\n".join(wrong), ()) if wrong else (PASSED, "", (*right, *notes, *alone))


def _memory_saver(seen: Mapping[str, Seen], _: tuple[str, ...], __: Sequence[Row]) -> Found:
    host = seen["host"]
    if reason := _obstacle(host):
        return COULD_NOT_RUN, reason, ()
    if "memory_saver" not in host:
        return COULD_NOT_RUN, NO_CODE, ()
    saver = host["memory_saver"]
    if "absent" in saver:
        return COULD_NOT_RUN, "the image has no torch_memory_saver", ()
    if "error" in saver:
        return FAILED, saver["error"], ()
    rocm = host["counts"]["torch"]["rocm"]
    wrong = []
    for size in saver["sizes"]:
        asked = size["asked"]
        if size["freed"] < ENOUGH * asked:
            wrong.append(f"a pause of {asked} bytes freed {size['freed']} (ROCm {rocm})")
        elif size["taken_again"] < ENOUGH * asked:
            wrong.append(f"a resume of {asked} bytes took {size['taken_again']} (ROCm {rocm})")
        if not size["kept"]:
            wrong.append(f"{asked} bytes have other contents after a resume")
    freed = (f"a pause of {size['asked']} bytes freed {size['freed']}" for size in saver["sizes"])
    return (FAILED, "\n".join(wrong), ()) if wrong else (PASSED, "", tuple(freed))


def _unmasked(host: Seen) -> str:
    """Why no process got a mask of its own."""
    if len(host["counts"]["torch"]["devices"]) == 1:
        return "it takes 2 GPUs or more, one is here"
    return "the mask has UUIDs, and an engine's has numbers"


def _ipc(seen: Mapping[str, Seen], _: tuple[str, ...], rows: Sequence[Row]) -> Found:
    host = seen["host"]
    if reason := _obstacle(host):
        return COULD_NOT_RUN, reason, ()
    if "ipc" not in host:
        return COULD_NOT_RUN, _unmasked(host), ()
    ours = [row for row in rows if row["own"] and row["ipc"] == "host"]
    bad = [row for row in ours if row["mask"] != "narrow" and row["result"] != GOOD]
    stray = [row for row in rows if row["result"] == "other bytes" and row not in bad]
    silent = [name for name in seen if "ipc" not in seen[name]]
    untried = (
        f"{name} IPC namespace: could not run: {_obstacle(seen[name]) or _unmasked(seen[name])}" for name in silent
    )
    notes = (*_settings(rows), *untried, *(f"{_shown(row)} reads other memory than was exported" for row in stray))
    if bad:
        return FAILED, "\n".join([*(f"{_shown(row)}: {row['detail'] or row['result']}" for row in bad), *notes]), ()
    return PASSED, "", notes


def _shown(row: Row) -> str:
    return f"GPU {row['gpu']} under the mask {row['engine']}"


def _settings(rows: Sequence[Row]) -> Iterator[str]:
    """What works in each setting, with masks as long as the trainer's."""
    for ipc, legacy in dict.fromkeys((row["ipc"], row["legacy"]) for row in rows):
        tried = [r for r in rows if (r["ipc"], r["legacy"]) == (ipc, legacy) and r["mask"] != "narrow"]
        good = sum(row["result"] == GOOD for row in tried)
        yield f"{LEGACY}={legacy}, {ipc} IPC namespace: {good} of {len(tried)} imports"


def _sentence(found: Found, rows: Sequence[Row]) -> str:
    """What it means for colocate weight sync."""
    outcome, detail, _ = found
    if outcome == COULD_NOT_RUN:
        return f"whether colocate weight sync works here is not known: {detail}"
    ours = [row for row in rows if row["own"] and row["ipc"] == "host"]
    if any(row["result"] == "other bytes" for row in ours):
        return "colocate weight sync would load other weights than the trainer's here, without an error"
    failing = [row["gpu"] for row in ours if row["mask"] == "narrow" and row["result"] != GOOD]
    if outcome == FAILED:
        longer = [row for row in rows if row["mask"] != "narrow" and row["ipc"] == "host"]
        tried = {row["legacy"]: True for row in longer} | {r["legacy"]: False for r in longer if r["result"] != GOOD}
        works = [legacy for legacy, good in tried.items() if good]
        other = f"; with {LEGACY}={works[0]} it would" if works else ""
        return f"colocate weight sync does not work here, even where an engine sees every GPU of its node{other}"
    if failing:
        gpus = ", ".join(map(str, failing))
        return (
            "colocate weight sync works here where an engine's mask lists its own GPUs and then the rest of the node; "
            f"with its own GPUs alone it fails on GPU {gpus}"
        )
    return "colocate weight sync works here with either mask: this runtime does not need the longer one"


Judges = Callable[[Mapping[str, Seen], tuple[str, ...], Sequence[Row]], Found]
# What is promised, what to do where it is broken, and who judges it; in the order in which it is tried.
CHECKS: Mapping[str, tuple[str, str, Judges]] = {
    "nodes": (
        "the GPUs' device nodes open",
        "give the container their groups by number: `python -m builder run TAG --print` shows how",
        _nodes,
    ),
    "masks": (
        "the visibility masks do not contradict each other",
        "set HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES alike, and ROCR_VISIBLE_DEVICES not at all",
        _masks,
    ),
    "counts": (
        "torch counts the GPUs that HIP counts, whatever is imported first",
        "a second copy of libamd_smi or another ROCm in the process: forbid the distribution that brings it",
        _counts,
    ),
    "targets": ("the image has code for every GPU", "build it with --gpu-target for this machine", _targets),
    "products": (
        "a matrix product is right on every GPU",
        "two copies of ROCm in one process, or a GPU to take out of service",
        _products,
    ),
    "memory_saver": (
        "the memory saver frees what it pauses, and brings it back",
        "train with --no-offload-train, or take another ROCm",
        _memory_saver,
    ),
    "ipc": (
        "an engine that sees its node opens what a trainer exports from every GPU",
        f"the table shows where it fails; try the other {LEGACY}, and the host's IPC namespace",
        _ipc,
    ),
}
