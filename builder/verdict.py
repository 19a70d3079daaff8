"""What the probe's observations of a GPU host come to: checks, and one plain sentence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from builder.observed import GOOD, SETTINGS, Probed, Row, Seen
from builder.report import COULD_NOT_RUN, FAILED, PASSED, Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Found = tuple[Outcome, str, tuple[str, ...]]  # outcome, detail, notes
ENOUGH = 0.9  # of the bytes asked for: the memory saver works in whole chunks
LEGACY = "HSA_ENABLE_IPC_MODE_LEGACY"
HIDERS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def judge(seen: Mapping[str, Seen], targets: tuple[str, ...] = ()) -> Probed:
    """The verdict on what was seen in each setting.

    Args:
        targets: the GPU targets in the image's label; where it has none, those that its torch names.
    """
    host = seen["host"]
    known = targets or tuple(host.get("counts", {}).get("torch", {}).get("targets", ()))
    rows = tuple({**row, "ipc": name} for name in SETTINGS for row in seen.get(name, {}).get("ipc", ()))
    found = {kind: judges(host, known, rows) for kind, (_, _, judges) in CHECKS.items()}
    checks = tuple(
        Check(
            name=CHECKS[kind][0],
            kind=f"gpu_{kind}",
            outcome=outcome,
            detail=detail,
            hint=CHECKS[kind][1],
            seconds=0.0,
            notes=notes,
        )
        for kind, (outcome, detail, notes) in found.items()
    )
    return Probed(
        seen=seen, targets=known or ("unknown",), checks=checks, rows=rows, sentence=_sentence(found["ipc"], rows)
    )


def _nodes(host: Seen, _: tuple[str, ...], __: Sequence[Row]) -> Found:
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


def _masks(host: Seen, _: tuple[str, ...], __: Sequence[Row]) -> Found:
    masks = {name: value for name, value in host["masks"].items() if value is not None}
    unset = [name for name in host["masks"] if name not in masks]
    shown = (*(f"{name}={value!r}" for name, value in masks.items()), f"not set: {', '.join(unset) or 'none'}")
    problems = []
    hip, cuda, rocr = (masks.get(name) for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", HIDERS[0]))
    if hip is not None and cuda is not None and hip != cuda:
        problems.append(f"HIP_VISIBLE_DEVICES={hip!r} and CUDA_VISIBLE_DEVICES={cuda!r}: vLLM refuses to start")
    if rocr is not None and (hip is not None or cuda is not None):
        problems.append(f"ROCR_VISIBLE_DEVICES={rocr!r} masks first, and the other mask counts in what it leaves")
    for name in HIDERS:
        words = masks.get(name, "").split(",")
        if len(set(words)) < len(words):
            problems.append(f"{name}={masks[name]!r} names a GPU twice")
        strange = [word for word in words if word and not word.isdecimal() and not word.startswith("GPU-")]
        if strange:
            problems.append(f"{name}={masks[name]!r}: whatever stands after {strange[0]!r} is hidden too")
    named = len((hip or cuda or "").split(",")) if hip or cuda else 0
    counted = host.get("counts", {}).get("torch", {}).get("hip")
    if named and counted is not None and counted != named:
        problems.append(f"the mask names {named} GPUs, HIP counts {counted}: it names one that is not there")
    if problems:
        return FAILED, "\n".join([*problems, *shown]), ()
    if not masks and _no_node(host):
        return COULD_NOT_RUN, "no mask is set, and there is no GPU to hide", ()
    alone = ("ROCR_VISIBLE_DEVICES is set: Ray refuses to run with it",) if rocr is not None else ()
    return PASSED, "", (*alone, *shown)


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
    return "" if counts["torch"] else "torch counts no GPU"


def _counts(host: Seen, _: tuple[str, ...], __: Sequence[Row]) -> Found:
    reason = _obstacle(host)
    if reason and reason != "torch counts no GPU":
        return COULD_NOT_RUN, reason, ()
    lines: list[str] = []
    wrong: list[str] = []
    absent: list[str] = []
    wanted = host["counts"]["torch"]["hip"]
    for order, counts in host["counts"].items():
        if "ModuleNotFoundError" in counts.get("error", ""):
            absent.append(f"{order}: {counts['error']}")
            continue
        told = counts.get("error") or f"torch {counts['torch']}, HIP {counts['hip']}"
        line = f"imported as {order.replace(',', ', then ')}: {told}"
        lines.append(line)
        if "error" in counts or counts["torch"] != counts["hip"] or counts["hip"] != wanted or not wanted:
            wrong.append(line)
    if wrong:
        nodes = f"{len(host['nodes']) - 1} render nodes are there"
        return FAILED, "\n".join([*wrong, nodes]), ()
    return PASSED, "", (*lines, *absent)


def _targets(host: Seen, known: tuple[str, ...], _: Sequence[Row]) -> Found:
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


def _products(host: Seen, _: tuple[str, ...], __: Sequence[Row]) -> Found:
    if reason := _obstacle(host):
        return COULD_NOT_RUN, reason, ()
    if not host["products"]:
        return COULD_NOT_RUN, "no GPU is one that the image has code for", ()
    wrong: list[str] = []
    right: list[str] = []
    for trial in host["products"]:
        where = f"GPU {trial['ordinal']}" if trial["engine"] is None else f"device 0 under the mask {trial['engine']}"
        told = trial.get("error") or ("as on the CPU" if trial["equal"] else "another result than on the CPU")
        (right if trial.get("equal") else wrong).append(f"{where}: {told}")
    left = len(host["counts"]["torch"]["devices"]) - sum(trial["engine"] is None for trial in host["products"])
    notes = (f"not tried on {left} that the image has no code for",) if left else ()
    alone = () if any(trial["engine"] for trial in host["products"]) else ("one GPU: no mask that begins elsewhere",)
    return (FAILED, "\n".join(wrong), ()) if wrong else (PASSED, "", (*right, *notes, *alone))


def _memory_saver(host: Seen, _: tuple[str, ...], __: Sequence[Row]) -> Found:
    if reason := _obstacle(host):
        return COULD_NOT_RUN, reason, ()
    saver = host["saver"]
    if "absent" in saver:
        return COULD_NOT_RUN, "the image has no torch_memory_saver", ()
    if "error" in saver:
        return FAILED, saver["error"], ()
    asked, freed = saver["asked"], saver["freed"]
    rocm = host["counts"]["torch"]["rocm"]
    wrong = []
    if freed < ENOUGH * asked:
        wrong.append(f"a pause of {asked} bytes freed {freed} (ROCm {rocm})")
    if saver["taken_again"] < ENOUGH * asked:
        wrong.append(f"a resume of {asked} bytes took {saver['taken_again']} (ROCm {rocm})")
    if not all(saver["kept"]):
        wrong.append(f"{saver['kept'].count(False)} of {len(saver['kept'])} tensors have other contents after a resume")
    return (FAILED, "\n".join(wrong), ()) if wrong else (PASSED, "", (f"a pause of {asked} bytes freed {freed}",))


def _ipc(host: Seen, _: tuple[str, ...], rows: Sequence[Row]) -> Found:
    if reason := _obstacle(host):
        return COULD_NOT_RUN, reason, ()
    if not rows:
        return COULD_NOT_RUN, "it takes 2 GPUs or more, one is here", ()
    ours = [row for row in rows if row["own"] and row["ipc"] == "host"]
    bad = [row for row in ours if row["mask"] != "narrow" and row["result"] != GOOD]
    stray = [row for row in rows if row["result"] == "other bytes" and row not in bad]
    notes = (*_settings(rows), *(f"{_shown(row)} reads other memory than was exported" for row in stray))
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


Judges = Callable[[Seen, tuple[str, ...], Sequence[Row]], Found]
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
