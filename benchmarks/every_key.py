"""A change of every key of a manifest; all leave the image sound.

A key stands as `sources.*.requirements.add.*.version`, with a star for each name or number; with a star at its end it
stands for the names themselves, an entry more or less. reads.py says why a key has no row.
"""

from __future__ import annotations

from benchmarks.changes import OTHER, SHARED, Change, edit, first, more, repinned, without

ROCM = "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_{}/lib/libamdhip64.so"
NOTHING = ("  no-such-thing:", "    reason: nothing")
# Other versions of what installs and builds: the wheels are the index's own.
UV = ("0.13.9", "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19")
LATER_UV = ("0.13.8", "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984")
WHEEL = ("0.45.1", "708e7481cc80179af0e556bbf0cc00b8444c7321e2700b8d8580231d13017248")
LATER_WHEEL = ("0.45.0", "52f0baa5e6522155090a09c6bd95718cc46956d1b51d537ea5454249edb671c7")

_LATER_PATCH = "docker/amd_patch/latest/later.patch"
_MASK = "/usr/lib/libamdhip64.so:\n    to: "
OF_THE_FIRST = (
    edit("the list of GPU targets", "target", "gpu_targets.*", "[gfx942, gfx950]", "[gfx942]"),
    more("a sealed distribution", "sealed", "sealed.*", "sealed", *NOTHING, "    optional: true"),
    edit(
        "a sealed distribution: optional",
        "sealed",
        "sealed.*.optional",
        "apex:\n    reason",
        "apex:\n    optional: true\n    reason",
    ),
    more(
        "a link", "links", "links.*", "links", "  /usr/lib/another.so:", f"    to: {ROCM.format('devel')}", NOTHING[1]
    ),
    edit("a link: to", "links", "links.*.to", f"{_MASK}{ROCM.format('devel')}", f"{_MASK}{ROCM.format('core')}"),
    more("an executable", "links", "executables.*", "executables", "  /usr/bin/git:", NOTHING[1]),
    Change(
        what="two build tools less",
        part="build_tools",
        keys=("build_tools.*",),
        edits=without("setuptools-rust", "semantic-version"),
    ),
    edit(
        "a build tool: version, hash",
        "build_tools",
        "build_tools.*.version build_tools.*.sha256",
        "\n    sha256: ".join(WHEEL),
        "\n    sha256: ".join(LATER_WHEEL),
        path=SHARED,
    ),
    edit(
        "the installer: version, hash",
        "policy",
        "installer.*.version installer.*.sha256",
        "\n    sha256: ".join(UV),
        "\n    sha256: ".join(LATER_UV),
        path=SHARED,
    ),
    edit(
        "no installer",
        "policy",
        "installer.*",
        f"installer:\n  uv:\n    version: {UV[0]}\n    sha256: {UV[1]}\n",
        "",
        path=SHARED,
    ),
    more("a removed distribution", "removed", "removed.*", "removed", *NOTHING, "    optional: true"),
    edit(
        "a removed distribution: optional",
        "removed",
        "removed.*.optional",
        "  PyJWT:\n",
        "  PyJWT:\n    optional: true\n",
        path=SHARED,
    ),
    more(
        "a constraint", "policy", "constraints.*", "constraints", NOTHING[0], "    version: <2", NOTHING[1], path=SHARED
    ),
    edit("a constraint: version", "policy", "constraints.*.version", "version: <26\n", "version: <27\n", path=SHARED),
    more("an override", "policy", "overrides.*", "overrides", "  pillow:", "    version: 12.1.0", NOTHING[1]),
    edit("an override: version", "policy", "overrides.*.version", "version: 4.11.0.86", "version: 4.11.0.87"),
    more("a forbidden distribution", "policy", "forbidden.*", "forbidden", *NOTHING),
    edit(
        "why it is forbidden, which the judge quotes",
        "policy",
        "forbidden.*.reason",
        "reason: a CUDA build\n",
        "reason: a build for CUDA\n",
        path=SHARED,
    ),
    first("a distribution built from source", "policy", "source_builds.*", "source_builds", *NOTHING),
    first(
        "an option of pip's that is ignored",
        "policy",
        "ignored_pip_options.*",
        "ignored_pip_options",
        "  extra-index-url:",
        NOTHING[1],
    ),
    edit(
        "vime: repository",
        "vime",
        "sources.*.repository",
        "vllm-project/vime\n",
        "vllm-project/vime.git\n",
        path=SHARED,
    ),
    edit(
        "Megatron: distribution, by which the judge knows it",
        "megatron policy",
        "sources.*.distribution",
        "distribution: megatron-core",
        "distribution: megatron_core",
        path=SHARED,
    ),
    edit(
        "torch_memory_saver: submodules",
        "torch_memory_saver",
        "sources.*.submodules",
        "modules: [torch_memory_saver]\n",
        "modules: [torch_memory_saver]\n    submodules: true\n",
        path=SHARED,
    ),
    Change(
        what="a local patch of vime",
        part="patch",
        keys=("sources.*.patches.*.sha256",),
        edits=repinned(),
    ),
    edit(
        "Megatron: a patch of vime's more",
        "megatron",
        "sources.*.patches.* sources.*.patches.*.source sources.*.patches.*.path",
        "    modules: [megatron.core, megatron.core.datasets.helpers_cpp, megatron.training]\n    patches:\n",
        "    modules: [megatron.core, megatron.core.datasets.helpers_cpp, megatron.training]\n    patches:\n"
        f"      - source: vime\n        path: {_LATER_PATCH}\n",
        path=SHARED,
    ),
    edit(
        "vLLM: the file of its requirements",
        "vllm_set",
        "sources.*.requirements.file",
        "file: requirements/rocm.txt",
        "file: requirements/later.txt",
    ),
    edit(
        "a requirement of vLLM's taken out",
        "vllm_set",
        "sources.*.requirements.without.*",
        "      without:\n",
        "      without:\n        no-such-thing:\n          reason: nothing\n",
    ),
    edit(
        "a requirement of vime's more",
        "vime_set",
        "sources.*.requirements.add.*",
        "      add:\n        flash-linear",
        '      add:\n        scipy:\n          version: ">=1"\n          reason: nothing\n        flash-linear',
        path=SHARED,
    ),
    edit(
        "a requirement of vLLM: version",
        "vllm_set",
        "sources.*.requirements.add.*.version",
        'version: ">=1.4"',
        'version: ">=1.3"',
    ),
    edit(
        "a requirement of vime: version",
        "vime_set",
        "sources.*.requirements.add.*.version",
        "version: ==0.4.2",
        'version: "<=0.4.2"',
        path=SHARED,
    ),
    edit("vLLM: a module more", "checks", "sources.*.modules.*", "modules: [vllm]", "modules: [vllm, vllm.engine]"),
    edit("vLLM: device code of a module less", "checks", "sources.*.device_code.*", ", _rocm_C]", "]"),
    edit(
        "vime imports from one source less",
        "checks",
        "sources.*.imports_from.*",
        "imports_from: [vllm, megatron]",
        "imports_from: [megatron]",
        path=SHARED,
    ),
    edit(
        "an unused part of vime",
        "checks",
        "sources.*.unused.*",
        "    unused:\n",
        "    unused:\n      vime_plugins/no_such_thing/*:\n        reason: nothing\n",
        path=SHARED,
    ),
    edit(
        "why it is unused, which a check quotes",
        "checks",
        "sources.*.unused.*.reason",
        "reason: for Megatron-Bridge",
        "reason: of Megatron-Bridge",
        path=SHARED,
    ),
    more("a variable", "env", "env.*", "env", "  NO_SUCH_THING:", '    value: "1"', NOTHING[1]),
    edit("a variable: value", "env", "env.*.value", 'value: "0"', 'value: "1"'),
    more("a dropped variable", "env", "dropped_env.*", "dropped_env", "  HSA_NO_SCRATCH_RECLAIM:", NOTHING[1]),
    more("a forbidden variable", "checks", "forbidden_env.*", "forbidden_env", "  NO_SUCH_THING:", NOTHING[1]),
    more(
        "a line of `pip check`",
        "checks",
        "pip_check.* pip_check.*.*",
        "pip_check",
        "  no-such-thing:",
        "    another:",
        "      reason: nothing",
    ),
    edit(
        "why a line of `pip check` is waived, which a check quotes",
        "checks",
        "pip_check.*.*.reason",
        "reason: taken out of the set",
        "reason: out of the set",
    ),
    edit(
        "a line of `pip check` for an override, which the judge reads",
        "policy checks",
        "pip_check.*.*",
        "\n    numpy:\n      reason: an override",
        "\n    NumPy:\n      reason: an override",
    ),
    edit("a label: the summary", "", "summary", "summary: vLLM", "summary: today vLLM"),
    edit("the working directory", "", "workdir", "workdir: /opt/vime", "workdir: /opt", path=SHARED),
    edit("the entry point", "", "entrypoint.*", "[sleep, infinity]", '[sleep, "1000000"]', path=SHARED),
    edit("needs", "", "needs.*", "minutes: 300", "minutes: 200"),
)
OF_THE_SECOND = (
    edit(
        "a prebuilt wheel: a module more",
        "checks",
        "prebuilt.*.modules.*",
        "modules: [apex]",
        "modules: [apex, apex.later]",
        path=OTHER,
    ),
    edit(
        "TransformerEngine: a variable of its build",
        "transformer_engine",
        "sources.*.build_env.*",
        "    build_env:\n",
        '    build_env:\n      NO_SUCH_THING:\n        value: "1"\n        reason: nothing\n',
        path=OTHER,
    ),
    edit(
        "TransformerEngine: a variable of its build: value",
        "transformer_engine",
        "sources.*.build_env.*.value",
        'value: "0"\n        reason: CK',
        'value: "00"\n        reason: CK',
        path=OTHER,
    ),
    edit(
        "a requirement of TransformerEngine: version",
        "transformer_engine_set",
        "sources.*.requirements.add.*.version",
        'version: ">=0.8"',
        'version: ">=0.7"',
        path=OTHER,
    ),
    edit("vLLM, which the base ships: tag", "checks", "sources.*.tag", "tag: v0.29.0", "tag: 0.29.0", path=OTHER),
    edit(
        "a variable: value",
        "env",
        "env.*.value",
        'value: "0"\n    reason: vime',
        'value: "1"\n    reason: vime',
        path=OTHER,
    ),
)
