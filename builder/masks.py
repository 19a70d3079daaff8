"""What the five variables that hide GPUs say together. Every reader takes them in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROCR, OPENCL, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
OPENMP = "OMP_DEFAULT_DEVICE"


def faults(masks: Mapping[str, str], counted: int | None) -> Iterator[str]:
    """What contradicts itself, each as a line.

    Args:
        masks: the variables that are set.
        counted: the GPUs that HIP counts under them; None where nobody knows.

    Source:
        How each is read is in tests/gpu/rules.yaml, with the files of ROCm and torch that it was read in.
    """
    yield from _contradictions(masks)
    yield from _unreadable(masks)
    if counted is not None:
        yield from _absent(masks, counted)


def remarks(masks: Mapping[str, str]) -> Iterator[str]:
    """What is no fault by itself."""
    if ROCR in masks:
        yield f"{ROCR} is set: Ray refuses to run with it"
    if masks.get(OPENCL):
        yield f"{OPENCL} is set: by AMD's documentation it masks HIP too, by HIP's source it is for OpenCL alone"


def _contradictions(masks: Mapping[str, str]) -> Iterator[str]:
    """What two masks say of each other."""
    if HIP in masks and CUDA in masks and masks[HIP] != masks[CUDA]:
        yield f"{HIP}={masks[HIP]!r} and {CUDA}={masks[CUDA]!r}: vLLM refuses to start"
    if ROCR in masks and not masks.keys().isdisjoint({HIP, CUDA, OPENCL}):
        yield f"{ROCR}={masks[ROCR]!r} masks first, and the other mask counts in what it leaves"
    read = masks.get(HIP) or masks.get(CUDA)
    if read and masks.get(OPENCL) and masks[OPENCL] != read:
        yield f"{OPENCL}={masks[OPENCL]!r} and {read!r} for HIP: OpenCL sees other GPUs"


def _unreadable(masks: Mapping[str, str]) -> Iterator[str]:
    """What one mask says that not every reader takes alike."""
    for name in (ROCR, HIP, CUDA, OPENCL):
        value = masks.get(name)
        if value is None or (name == OPENCL and not value):
            continue
        if not value:
            meant = "hides every GPU" if name == ROCR else "is no mask to HIP and no GPU to torch"
            yield f"{name}={value!r} {meant}"
            continue
        words = [word.strip() if name == ROCR else word for word in value.split(",")]
        if len(set(words)) < len(words):
            yield f"{name}={value!r} names a GPU twice"
        uuids = [word.startswith("GPU-") for word in words]
        numbers = [word.isdecimal() and word == str(int(word)) for word in words]
        strange = [word for word, *read in zip(words, uuids, numbers, strict=True) if not any(read)]
        if strange:
            yield f"{name}={value!r}: {strange[0]!r} names no GPU, and it hides whatever stands behind it"
        elif any(uuids) and any(numbers):
            yield f"{name}={value!r} has numbers and UUIDs: torch stops where the kind changes"


def _absent(masks: Mapping[str, str], counted: int) -> Iterator[str]:
    """What names a GPU that HIP does not count."""
    mask = masks.get(HIP) or masks.get(CUDA) or masks.get(ROCR)
    named = len(mask.split(",")) if mask else counted
    if counted < named:
        yield f"the mask names {named} GPUs, HIP counts {counted}: it names one that is not there"
    default = masks.get(OPENMP, "")
    if default.isdecimal() and int(default) >= counted:
        yield f"{OPENMP}={default!r} is beyond the {counted} GPUs that are visible"
