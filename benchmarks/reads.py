"""What each step of the images reads, and so what has to run again when a part changes; and what none reads."""

from __future__ import annotations

from benchmarks.changes import IMAGE, SECOND
from builder import dockerfile

FIRST, PROOF = "the builder", "the proof"  # two steps have no name of their own

# What each step that runs something reads, in small letters; in capitals, the steps whose work it reads. It is written
# from what the steps are for, not from a build. What compares the seal depends on all that was sealed before it; what
# asks pip or setuptools, on all that was installed; a fetch asks git, and the source that brings its patches.
READS = {
    FIRST: "base",
    "SEAL_BASE": "base sealed seal.py",
    "BUILD_TOOLS": "base build_tools seal.py SEAL_BASE",
    "LINKS": "base links",
    "GPU_TARGETS": "base target",
    "BUILD_VLLM": "vllm source.py seal.py SEAL_BASE LINKS BUILD_TOOLS GPU_TARGETS",
    "BUILD_TRANSFORMER_ENGINE": "transformer_engine source.py seal.py SEAL_BASE LINKS BUILD_TOOLS GPU_TARGETS",
    "BUILD_TORCH_MEMORY_SAVER": (
        "torch_memory_saver source.py seal.py LINKS BUILD_TOOLS GPU_TARGETS BUILD_VLLM BUILD_TRANSFORMER_ENGINE"
    ),
    "INSTALL_APEX": "prebuilt seal.py BUILD_TORCH_MEMORY_SAVER",
    "REMOVE": "removed judge.py seal.py BUILD_TORCH_MEMORY_SAVER INSTALL_APEX",
    "REQUIREMENTS_VLLM": "policy vllm_set judge.py installer.py seal.py BUILD_VLLM REMOVE",
    "REQUIREMENTS_TRANSFORMER_ENGINE": (
        "policy transformer_engine_set judge.py installer.py seal.py BUILD_TRANSFORMER_ENGINE REMOVE"
    ),
    "FETCH_VIME": "base vime patch source.py",
    "REQUIREMENTS_VIME": (
        "policy vime_set judge.py installer.py seal.py FETCH_VIME REQUIREMENTS_VLLM REQUIREMENTS_TRANSFORMER_ENGINE"
    ),
    "INSTALL_VIME": "seal.py FETCH_VIME REQUIREMENTS_VIME",
    "FETCH_MEGATRON": "base megatron source.py FETCH_VIME",
    "INSTALL_MEGATRON": "seal.py FETCH_MEGATRON INSTALL_VIME",
    "VERIFY": "env checks check.py checked.py kinds.py trial.py imports.py device.py seal.py INSTALL_MEGATRON",
    PROOF: "check.py VERIFY",
}
# Of these, the ones that an image does not have.
LACKS = {
    IMAGE: {"BUILD_TRANSFORMER_ENGINE", "INSTALL_APEX", "REQUIREMENTS_TRANSFORMER_ENGINE"},
    SECOND: {"BUILD_VLLM", "REQUIREMENTS_VLLM"},
}
COMPILE = {IMAGE: "BUILD_VLLM", SECOND: "BUILD_TRANSFORMER_ENGINE"}  # the one that takes hours
_COMPILED = {IMAGE: "vllm", SECOND: "transformer_engine"}
# What may run it. Its step also fetches (source.py), so that its tree is in no layer; links are of the base.
MAY_COMPILE = {"source.py", "build_tools", "target", "sealed", "seal.py", "base", "links"}
# A file of one stage is a chain: what stands behind a step runs again with it. Where that is more than depends on the
# change, the other order would cost more.
MOMENTS = "moments, ahead of a compile that has to run anyway"
FETCHES = "a fetch takes seconds; ahead of the compiles and requirement sets, its own bump would run those"
TRADES = {"LINKS": MOMENTS, "GPU_TARGETS": MOMENTS, "FETCH_VIME": FETCHES, "FETCH_MEGATRON": FETCHES}

# Keys that change no step that runs something, and why; a test changes each, and compares the steps.
NO_STEP = {
    "extends": "names the file that brings other keys; only those are read",
    "base.facts": "names the file of what the base has; a change of that is a change of the base",
    "sealed.*.reason": "stands in the image's manifest.json alone",
    "constraints.*.reason": "stands in the image's manifest.json alone",
    "overrides.*.reason": "stands in the image's manifest.json alone",
    "source_builds.*.reason": "stands in the image's manifest.json alone",
    "ignored_pip_options.*.reason": "stands in the image's manifest.json alone",
    "installer.*.reason": "stands in the image's manifest.json alone",
    "build_tools.*.reason": "stands in the image's manifest.json alone",
    "removed.*.reason": "a comment above the step",
    "links.*.reason": "a comment above the step",
    "executables.*.reason": "a comment above the step",
    "prebuilt.*.reason": "a comment above the step",
    "sources.*.build_env.*.reason": "a comment above the step",
    "sources.*.requirements.without.*.reason": "stands in the image's manifest.json alone",
    "sources.*.requirements.add.*.reason": "stands in the image's manifest.json alone",
    "sources.*.tests.*": "the sources' own tests run when an image is verified, in none of its steps",
    "env.*.reason": "a comment above the variable",
    "dropped_env.*.reason": "stands in the image's manifest.json alone",
    "forbidden_env.*.reason": "stands in the image's manifest.json alone",
}
# Keys whose change makes a step more, or one of another name: there is none to compare it with.
ANOTHER_STEP = {
    "prebuilt.*": "each prebuilt wheel is a step, of its name",
    "sources.*": "each source is two steps or three, of its name",
    "sources.*.recipe": "another recipe has other steps",
}


def steps(image: str) -> list[str]:
    """The steps of an image that run something, in the order of the table."""
    return [step for step in READS if step not in LACKS[image]]


def dependents(part: str, image: str = IMAGE) -> list[str]:
    """The steps that read the part, or what such a step has made; in the order of the table."""
    found: set[str] = set()
    for step in steps(image):  # a step reads nothing that is made later
        if {*part.split(), *found} & set(READS[step].split()):
            found.add(step)
    return [step for step in steps(image) if step in found]


def may_compile(part: str, image: str) -> bool:
    return bool(set(part.split()) & {*MAY_COMPILE, _COMPILED[image]})


def named(text: str, image: str) -> dict[str, str]:
    """The steps that run something, in their order: by the builder's name, that of the table."""
    runs = [step.name for step in dockerfile.parse(text) if step.keyword == "RUN"]
    names = dict(zip(runs, [FIRST, *runs[1:-1], PROOF], strict=True))
    if set(names.values()) != set(steps(image)):
        raise SystemExit(f"steps and their table differ: {sorted(set(names.values()) ^ set(steps(image)))}")
    return names
