"""Faults as people make them, each planted in a project, in a source's repository, or in what a repository does later."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from origins import FACTS, MANIFEST, World

from builder import dockerfile

Plant = Callable[[Path], None]
IMAGE = "images/rocm7.14.yaml"
SHARED = "images/shared/vime.yaml"
SECOND = "images/rocm7.2.yaml"
BASE = f"images/bases/{FACTS.path.name}"
COMMIT = MANIFEST.sources["vllm"].commit
PATCH = "images/patches/vime/engine-mask.patch"
MEGATRON_PATCH = "docker/amd_patch/latest/megatron.patch"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, the stage that has to catch it, and how.

    Attributes:
        case: its report in the field, where it has one.
        says: what the message has to name.
        project: what it changes in a copy of the project; the Dockerfile is then rendered anew, as a user does.
        trees: what it changes in the stand-ins before they are pinned.
        later: what becomes of a repository after that.
        by: the rule of the generated file, or the first probe, that finds it.
        along: other probes that cannot but fail too.
    """

    case: str = "-"
    title: str
    stage: str = "check"
    says: tuple[str, ...]
    project: Plant | None = None
    trees: Plant | None = None
    later: Callable[[World], object] | None = None
    by: str = ""
    along: tuple[str, ...] = ()
    image: str = MANIFEST.name
    rendered: bool = True


def edit(path: str, old: str, new: str) -> Plant:
    """A change of one file, at the first place that has `old`."""

    def change(root: Path) -> None:
        text = (root / path).read_bytes().decode()
        assert old in text, f"{path} no longer has {old!r}"
        (root / path).write_bytes(text.replace(old, new, 1).encode())

    return change


def append(path: str, text: str) -> Plant:
    def change(root: Path) -> None:
        with (root / path).open("a", encoding="utf-8") as file:
            file.write(text)

    return change


def each(*plants: Plant) -> Plant:
    def change(root: Path) -> None:
        for plant in plants:
            plant(root)

    return change


def in_step(line: str) -> Plant:
    return edit("templates/base.j2", "rm /tmp/build-tools.txt\n", f"rm /tmp/build-tools.txt\n{line}\n")


def without_tool(root: Path) -> None:
    """Facts that name every tool of the base but git."""
    text = (root / f"dockerfiles/Dockerfile.{MANIFEST.name}").read_text("utf-8")
    called = {tool for step in dockerfile.parse(text) if step.keyword == "RUN" for tool in dockerfile.commands(step)}
    append(BASE, f"\ntools: [{', '.join(sorted(called - {'git'}))}]\n")(root)


def with_crlf(root: Path) -> None:
    """Our own patch with the line ends of another system, and the digest that belongs to it."""
    content = (root / PATCH).read_bytes()
    (root / PATCH).write_bytes(content.replace(b"\n", b"\r\n"))
    digests = [hashlib.sha256(each).hexdigest() for each in (content, content.replace(b"\n", b"\r\n"))]
    edit(SHARED, digests[0], digests[1])(root)


def twin(root: Path) -> None:
    (root / "images/ROCM7.14.yaml").write_bytes((root / IMAGE).read_bytes())


def applied(standins: Path) -> None:
    """Megatron has what the patch adds."""
    patch = standins / "sources/vime" / MEGATRON_PATCH
    subprocess.run(["git", "apply", str(patch)], cwd=standins / "sources/Megatron-LM", check=True)


def crlf_patch(standins: Path) -> None:
    patch = standins / "sources/vime" / MEGATRON_PATCH
    patch.write_bytes(patch.read_bytes().replace(b"\n", b"\r\n"))


def rewritten(standins: Path) -> None:
    """What the patch changes is another text."""
    patch = (standins / "sources/vime" / MEGATRON_PATCH).read_text()
    name = next(line.removeprefix("+++ b/") for line in patch.splitlines() if line.startswith("+++ "))
    path = standins / "sources/Megatron-LM" / name
    removed = next(line[1:] for line in patch.splitlines() if re.match(r"-(?!--)\s*\S", line))
    text = path.read_text()
    assert removed in text
    path.write_text(text.replace(removed, f"{removed}  # upstream has changed this"))


def moved(standins: Path) -> None:
    """What vime takes of vLLM stands in another module now."""
    old = standins / "sources/vllm/vllm/engine/arg_utils.py"
    old.rename(old.with_name("elsewhere.py"))
    old.write_text("")


def move(old: Path, new: Path) -> None:
    old.rename(new)


def retagged(world: World) -> None:
    world.repositories["vllm"].commit({"new.txt": "x\n"}, tag="v0.29.0")


def line(source: str, text: str) -> Plant:
    """A line more in the requirement file of a source."""
    return append(
        {"vllm": "sources/vllm/requirements/rocm.txt", "vime": "sources/vime/requirements.txt"}[source], f"{text}\n"
    )


PLAN = "{}'s requirements have a plan that leaves the base alone"
TOOLS = "{} finds the tools that it is built with"
PATCHES = "the patches of {} apply, in their order"
WINDOW = "{} has every name that {} imports from it"
CLAIMS = "{}'s tree has what the manifest says of it"
DEVICE_CODE = "vllm compiles every module that is said to have device code"
OF_VLLM = (TOOLS.format("vllm"), CLAIMS.format("vllm"), DEVICE_CODE, PLAN.format("vllm"), WINDOW.format("vllm", "vime"))
TAG = "vllm's v0.29.0 is what is pinned"

CHECK = (
    Fault(title="a key is misspelt", says=("unknown key 'comit'",), project=edit(IMAGE, "commit: ", "comit: ")),
    Fault(title="a number is a word", says=("'plenty' is no whole number",), project=edit(IMAGE, "disk_gb: 200", "disk_gb: plenty")),
    Fault(title="a list is a word", says=("wants a list",), project=edit(IMAGE, "gpu_targets: [gfx942, gfx950]", "gpu_targets: gfx942")),
    Fault(case="H10", title="a tag without its commit", says=("commit",), project=edit(IMAGE, f"    commit: {COMMIT}\n", "")),
    Fault(case="H10", title="a commit of 39 digits", says=("39",), project=edit(IMAGE, COMMIT, COMMIT[:-1])),
    Fault(case="H10", title="a branch for a commit", says=("'main'",), project=edit(IMAGE, COMMIT, "main")),
    Fault(title="a commit of zeros", says=("of zeros",), project=edit(IMAGE, COMMIT, "0" * 40)),
    Fault(case="B22", title="a base by a tag that moves", says=("latest",), project=edit(IMAGE, "image: rocm/primus:v26.4", "image: rocm/primus:latest")),
    Fault(case="B14", title="the digest of another base", says=("the facts are of",),
          project=edit(IMAGE, MANIFEST.base.digest, f"sha256:{'a' * 64}")),
    Fault(case="B14", title="another tag of the base, under the old digest", says=("the facts are of",), project=edit(IMAGE, "image: rocm/primus:v26.4", "image: rocm/primus:v26.5")),
    Fault(title="facts that are not there", says=("no file",), project=edit(IMAGE, "facts: primus-v26.4", "facts: primus-v26.5")),
    Fault(case="E04", title="a key is written twice", says=("commit",), project=edit(IMAGE, f"    commit: {COMMIT}\n", f"    commit: {COMMIT}\n" * 2)),
    Fault(case="E05", title="a variable without a value", says=("value",), project=edit(IMAGE, 'value: "0"', "value:")),
    Fault(case="B12", title="a variable that names the compiling machine's GPU", says=("native",), project=edit(IMAGE, 'value: "0"', "value: native")),
    Fault(case="F04", title="a variable that is forbidden is declared", says=("ROCR_VISIBLE_DEVICES",),
          project=edit(IMAGE, "\nenv:\n", "\nenv:\n  ROCR_VISIBLE_DEVICES:\n    value: '0'\n    reason: none\n")),
    Fault(case="F04", title="the base sets a variable that is forbidden", says=("the base sets 'ROCR_VISIBLE_DEVICES'",),
          project=edit(BASE, "\nenv:\n", "\nenv:\n  ROCR_VISIBLE_DEVICES: '0'\n")),
    Fault(case="F11", title="a target for which the base's torch has no code", says=("no code for gfx1100",),
          project=edit(IMAGE, "[gfx942, gfx950]", "[gfx942, gfx1100]")),
    Fault(case="G05", title="a shipped vLLM of another version than its tag", says=("the base has vllm",), image="rocm7.2",
          project=edit(SECOND, "tag: v0.29.0", "tag: v0.30.0")),
    Fault(case="B21", title="a prebuilt wheel for another Python", says=("is for cp311",), image="rocm7.2",
          project=edit(SECOND, "cp312-cp312", "cp311-cp311")),
    Fault(title="a path of a ROCm that the base does not have", says=("no /opt/rocm",),
          project=edit(IMAGE, "    to: /opt/venv/lib/python3.12/site-packages/_rocm_sdk_devel/lib/libamdhip64.so", "    to: /opt/rocm/lib/libamdhip64.so")),
    Fault(case="A17", title="a sealed distribution by its module's name", says=("the base has no distribution 'aiter'",),
          project=edit(SHARED, "  amd-aiter:", "  aiter:")),
    Fault(case="C06", title="a patch by its address", says=("path",), project=edit(SHARED, "path: images/patches/vime/engine-mask.patch", "path: https://example.com/1.diff")),
    Fault(case="C09", title="a patch from a source that comes later", says=("stands after",),
          project=edit(SHARED, "      - path: images/patches/vime/engine-mask.patch", "      - source: megatron\n        path: a.patch\n      - path: images/patches/vime/engine-mask.patch")),
    Fault(case="A19", title="apex among the requirements to add", says=("'apex' is sealed",),
          project=edit(IMAGE, "        joblib:", "        apex:\n          version: '>=1'\n          reason: none\n        joblib:")),
    Fault(case="A22", title="a CUDA library among the requirements to add", says=("is forbidden",),
          project=edit(IMAGE, "        joblib:", "        nvidia-cublas-cu13:\n          version: '>=1'\n          reason: none\n        joblib:")),
    Fault(case="A02", title="a constraint on a sealed distribution", says=("torch",),
          project=edit(SHARED, "constraints:\n", "constraints:\n  torch:\n    version: ==2.13.0\n    reason: none\n")),
    Fault(title="credentials in an address", says=("repository",), project=edit(IMAGE, "https://github.com/vllm", "https://me:secret@github.com/vllm")),
    Fault(title="an option of git for an address", says=("repository",), project=edit(IMAGE, "https://github.com/vllm-project/vllm", "--upload-pack=touch")),
    Fault(title="two sources in one folder", says=("have one checkout",),
          project=edit(SHARED, "https://github.com/fzyzcjy/torch_memory_saver.git", "https://example.com/vllm")),
    Fault(case="D14", title="two images with the same tags", says=("would have the same tags",), project=twin),
    Fault(case="E01", title="a list of aliases that grows when it is walked", says=("alias",), project=edit(IMAGE, "gpu_targets: [gfx942, gfx950]", "gpu_targets: &a [*a]")),
    Fault(case="D17", title="a character that turns the text around", says=("U+202E",), project=edit(IMAGE, "summary: vLLM", "summary: \u202evLLM")),
    Fault(title="a source that imports from nobody", says=("no source is called 'vlm'",), project=edit(SHARED, "imports_from: [vllm,", "imports_from: [vlm,")),
    Fault(title="a Dockerfile that was edited by hand", says=("is stale",), rendered=False, project=edit(f"dockerfiles/Dockerfile.{MANIFEST.name}", "gfx942\n", "gfx950\n")),
    Fault(title="a manifest whose Dockerfile was not rendered", says=("is stale",), rendered=False, project=edit(IMAGE, "summary: vLLM", "summary: today vLLM")),
    Fault(case="D17", title="a Dockerfile with another system's line ends", says=("is stale",), rendered=False, project=edit(f"dockerfiles/Dockerfile.{MANIFEST.name}", "\n", "\r\n")),
)  # fmt: skip

RENDER = (
    Fault(case="D09", title="a template names what no manifest has", says=("has no attribute 'gpus'",), project=in_step("echo {{ image.gpus }}")),
    Fault(case="D07", title="an argument has the name of a variable of the base", by="argument_is_not_shadowed", says=("VLLM_COMMIT",),
          project=edit(BASE, "\nenv:\n", f"\nenv:\n  VLLM_COMMIT: {'1' * 40}\n")),
    Fault(case="B12", title="a default has the name of a variable of the base", by="default_is_not_shadowed", says=("MAX_JOBS",), project=in_step('echo "${MAX_JOBS:-4}"')),
    Fault(title="an argument far above its first use", by="argument_stands_before_its_first_use", says=("LATE",),
          project=each(edit("templates/base.j2", "SHELL [", "ARG LATE=1\nSHELL ["), in_step('echo "$LATE"'))),
    Fault(case="A02", title="a pip install of one's own", by="every_pip_install_is_guarded", says=("outside the guard",), project=in_step("pip install einops")),
    Fault(case="A23", title="an install by uv", by="every_pip_install_is_guarded", says=("outside the guard",), project=in_step("uv pip install einops")),
    Fault(case="A03", title="another index in an install step", by="every_pip_install_is_guarded", says=("--extra-index-url",),
          project=edit("templates/base.j2", "--require-hashes --only", "--require-hashes --extra-index-url https://example.com --only")),
    Fault(case="A01", title="an install step that does not compare the seal", by="every_pip_install_is_guarded", says=("does not compare the seal",),
          project=edit("templates/base.j2", "{{ python }} {{ home }}/bin/seal.py check BUILD_TOOLS\n", "")),
    Fault(title="a tool that the base does not have", by="every_tool_is_in_the_base", says=("calls git",), project=without_tool),
    Fault(case="H14", title="a failure that is hidden", by="every_assertion_can_fail", says=("a failure is hidden",), project=in_step("rm /nothing || true")),
    Fault(case="H4", title="an assertion that cannot fail", by="every_assertion_can_fail", says=("never fails",), project=in_step("! grep -q cuda /etc/hosts")),
    Fault(case="D10", title="a file from a build context", by="no_build_context", says=("COPY",), project=edit("templates/base.j2", "SHELL [", "COPY patches /patches\nSHELL [")),
    Fault(case="D04", title="a script before the strict shell", by="one_strict_shell", says=("before SHELL",),
          project=edit("templates/base.j2", "SHELL [", "RUN <<'EARLY'\ntrue\nEARLY\nSHELL [")),
    Fault(case="D02", title="a step before the one that stops the classic builder", by="builder_stops_first", says=("classic builder",),
          project=edit("templates/base.j2", "RUN --mount=type=tmpfs", "RUN <<'EARLY'\ntrue\nEARLY\nRUN --mount=type=tmpfs")),
    Fault(title="a heredoc that the builder expands", by="heredocs_are_quoted_and_named_once", says=("is not quoted",),
          project=edit("templates/macros.j2", "COPY <<'{{ name }}'", "COPY <<{{ name }}")),
    Fault(title="a frontend from a registry", by="no_syntax_line", says=("syntax",), project=edit("templates/Dockerfile.j2", "# Made from", "# syntax=docker/dockerfile:1\n# Made from")),
    Fault(title="a second stage", by="one_stage", says=("2 stages",), project=edit("templates/base.j2", "SHELL [", "FROM scratch\nSHELL [")),
    Fault(title="the usual folder of ROCm in a script", by="no_foreign_rocm", says=("/opt/rocm",), project=in_step("ls /opt/rocm")),
    Fault(case="B12", title="a base that compiles for the machine's own GPU", by="no_variable_is_native", says=("=native",),
          project=edit(BASE, "PYTORCH_ROCM_ARCH: gfx942;gfx950", "PYTORCH_ROCM_ARCH: native")),
    Fault(case="D18", title="a line that the builder's parser cuts", by="lines_fit_the_parser", says=("BuildKit cuts at",), project=in_step(f"echo {'x' * 70_000}")),
    Fault(case="C06", title="a patch that was changed and not pinned again", says=("has the SHA-256",), project=append(PATCH, "\n")),
    Fault(title="a patch that is not there", says=("cannot be read",), project=lambda root: (root / PATCH).unlink()),
    Fault(case="C08", title="our own patch with another system's line ends", says=("lines that end in CR LF",), project=with_crlf),
)  # fmt: skip

PREFLIGHT = (
    Fault(case="B22", title="a tag that has moved", by=TAG, says=("has moved",), along=OF_VLLM, later=retagged),
    Fault(case="B10", title="a tag that is gone", by=TAG, says=("has no tag v0.29.0",), along=OF_VLLM,
          later=lambda world: world.repositories["vllm"].git("tag", "--delete", "v0.29.0")),
    Fault(case="B10", title="a commit that is gone", by="torch_memory_saver's commit is what is pinned", says=("no commit",),
          along=(TOOLS.format("torch_memory_saver"), CLAIMS.format("torch_memory_saver")),
          project=edit(SHARED, MANIFEST.sources["torch_memory_saver"].commit, "1" * 40)),
    Fault(case="C03", title="a patch that is upstream now", by=PATCHES.format("megatron"), says=("already upstream",), trees=applied),
    Fault(case="C01", title="a patch that conflicts", by=PATCHES.format("megatron"), says=("conflicts",), trees=rewritten),
    Fault(case="C08", title="a patch of a source with another system's line ends", by=PATCHES.format("megatron"), says=(MEGATRON_PATCH,), trees=crlf_patch),
    Fault(case="C06", title="a patch that its source has dropped", by=PATCHES.format("megatron"), says=("is not in vime at its commit",),
          along=(WINDOW.format("vime", "megatron"),),
          trees=lambda standins: (standins / "sources/vime" / MEGATRON_PATCH).unlink()),
    Fault(case="C06", title="our own patch on a commit that it does not fit", by=PATCHES.format("vime"), says=("conflicts",),
          trees=edit("sources/vime/vime/backends/vllm_utils/vllm_engine.py", "def _build_subprocess_env(server_args_dict:", "def _build_subprocess_env(its_args:")),
    Fault(case="G01", title="a name that vLLM has moved", by=WINDOW.format("vllm", "vime"), says=("it is now in vllm.engine.elsewhere",), trees=moved),
    Fault(case="G01", title="a name that vLLM does not have", by=WINDOW.format("vllm", "vime"), says=("no_such_name",),
          trees=append("sources/vime/vime/rollout/memory.py", "\nfrom vllm.engine.arg_utils import no_such_name\n")),
    Fault(case="G01", title="a name that Megatron does not have, taken in a function", by=WINDOW.format("megatron", "vime"), says=("no_such_state",),
          trees=append("sources/vime/vime/rollout/memory.py", "\ndef later():\n    from megatron.core.parallel_state import no_such_state\n")),
    Fault(case="A01", title="a requirement that wants another torch", by=PLAN.format("vllm"), says=("torch>=2.13",), trees=line("vllm", "torch>=2.13")),
    Fault(case="A04", title="`torch!=` the base's version", by=PLAN.format("vime"), says=("torch!=2.12.0",), trees=line("vime", "torch!=2.12.0")),
    Fault(case="A22", title="a requirement that is a CUDA library", by=PLAN.format("vllm"), says=("nvidia",), trees=line("vllm", "nvidia-cublas-cu13")),
    Fault(case="A19", title="apex in a requirement file", by=PLAN.format("vime"), says=("apex<1",), trees=line("vime", "apex<1")),
    Fault(title="a requirement that no index has", by=PLAN.format("vime"), says=("nosuchthing",), trees=line("vime", "nosuchthing")),
    Fault(case="B18", title="a requirement that wants another numpy", by=PLAN.format("vime"), says=("numpy>=2",), trees=line("vime", "numpy>=2")),
    Fault(case="A03", title="another index in a requirement file", by=PLAN.format("vllm"), says=("--extra-index-url",), trees=line("vllm", "--extra-index-url https://example.com")),
    Fault(case="A15", title="an editable line in a requirement file", by=PLAN.format("vime"), says=("-e /opt/other",), trees=line("vime", "-e /opt/other")),
    Fault(title="a requirement file that has moved", by=PLAN.format("vllm"), says=("requirements/rocm.txt",),
          trees=lambda standins: move(standins / "sources/vllm/requirements/rocm.txt", standins / "sources/vllm/rocm.txt")),
    Fault(case="B05", title="a commit that is built with another setuptools", by=TOOLS.format("vllm"), says=("setuptools>=80",),
          trees=edit("sources/vllm/pyproject.toml", "setuptools>=77.0.3,<81.0.0", "setuptools>=80")),
    Fault(case="H13", title="a requirement file that caps a build tool lower", by=TOOLS.format("vllm"), says=("setuptools",), along=(PLAN.format("vllm"),),
          trees=edit("sources/vllm/requirements/rocm.txt", "setuptools>=77.0.3,<80.0.0", "setuptools<78")),
    Fault(case="F11", title="a compiled module that the commit no longer has", by=DEVICE_CODE, says=("_old_C",),
          project=edit(IMAGE, "_rocm_C]", "_old_C]")),
    Fault(title="a module that is misspelt", by=CLAIMS.format("torch_memory_saver"), says=("no module torch_memory_savr",),
          project=edit(SHARED, "modules: [torch_memory_saver]", "modules: [torch_memory_savr]")),
    Fault(title="a distribution of another name than its project's", by=CLAIMS.format("megatron"), says=("builds megatron-core, not megatron-lm",),
          project=edit(SHARED, "distribution: megatron-core", "distribution: megatron-lm")),
    Fault(title="a source's own test that has moved", by=CLAIMS.format("vime"), says=("test_vllm_confg.py",),
          project=edit(SHARED, "test_vllm_config.py", "test_vllm_confg.py")),
    Fault(case="F03", title="a variable that vLLM does not read", by=CLAIMS.format("vllm"), says=("reads VLLM_USE_MEGA_AOT",),
          project=edit(IMAGE, "VLLM_USE_MEGA_AOT_ARTIFACT", "VLLM_USE_MEGA_AOT_ARTEFACT")),
)  # fmt: skip

# What a compile makes, and what a build does to its base: no stage before it can see that.
BUILD = (
    Fault(case="G05", title="a commit that compiles another version than its tag's", by="VERIFY", says=("vllm 0.29.0rc1+rocm714 is installed, the tag is v0.29.0",),
          trees=edit("sources/vllm/setup.py", "plain = get_version(root=HERE)", 'plain = "0.29.0rc1"')),
    Fault(case="F11", title="a build that compiles for another GPU", by="VERIFY", says=("wanted gfx942, found gfx90a",),
          trees=edit("sources/vllm/setup.py", "from pathlib import Path\n", 'import os\nos.environ["PYTORCH_ROCM_ARCH"] = "gfx90a"\nfrom pathlib import Path\n')),
    Fault(title="a source that writes into its own tree", by="VERIFY", says=("files that differ from the commit: requirements.txt",),
          trees=edit("sources/vime/setup.py", "from pathlib import Path\n", "from pathlib import Path\nopen('requirements.txt', 'a').write('\\n')\n")),
    Fault(case="A07", title="a build that writes into the base's torch", by="BUILD_TORCH_MEMORY_SAVER", says=(f"torch {FACTS.distributions['torch']}: file changed",),
          trees=edit("sources/torch_memory_saver/setup.py", "import os\n", f"import os\nopen('{FACTS.python.site_packages}/torch/version.py', 'a').write('# another build\\n')\n")),
    Fault(title="a source that does not compile", by="BUILD_VLLM", says=("compile error; first error: ", "its whole log, into build/logs: printf"),
          trees=edit("sources/vllm/csrc/_C.hip", "#include", "this is no C++;\n#include")),
)  # fmt: skip
# What other files of tests plant, by its title: they call `caught`.
ELSEWHERE = (
    "a commit that nobody knows",
    "a base whose torch_shm_manager may not be executed",
    "a base that sets a variable that is forbidden, unknown to its facts",
)
