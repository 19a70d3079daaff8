"""Each kind of check fails an image that breaks its promise; what proves nothing is no verification."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import junitparser
import pytest
from catches import Catches, Row

from builder import build, buildkit, checklist, facts, lists, manifest, rehearsal, render, verify
from builder.engine import Engine
from builder.errors import BuildFailedError, VerificationError
from builder.report import Check
from builder.standin import Ingredients
from builder.trace import Event

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
FACTS = facts.of(MANIFEST, ROOT)
PYTHON, SITE = FACTS.python.executable, FACTS.python.site_packages
ENGINE = "vime/backends/vllm_utils/vllm_engine.py"
SEAL = "the seal holds, every sealed file re-hashed"
ONE_COPY = "one process has one copy of each of ROCm's libraries"


def quiet(_: Event) -> None:
    """Watch nothing."""


@pytest.fixture(scope="module")
def order(engine: Engine) -> build.Order:
    ingredients = Ingredients(cache=ROOT / ".cache", root_image=None, index="stand-in")
    found = rehearsal.order(engine, MANIFEST, FACTS, ("gfx942",), ingredients, quiet)
    return replace(found, tag=f"vime-images-test/checks:{engine.owner}")


@pytest.fixture(scope="module")
def good(engine: Engine, order: build.Order) -> Iterator[str]:
    """The tag of a rehearsal that passes every check."""
    report = build.make(engine, order, quiet)
    assert report.passed_strictly, report.table()
    yield order.tag
    engine.remove_image(order.tag)


def changed(engine: Engine, good: str, *lines: str) -> str:
    """The id of an image that differs from the good one."""
    text = f'FROM {good}\nSHELL ["/bin/bash", "-euo", "pipefail", "-c"]\n' + "\n".join(lines) + "\n"
    return buildkit.build(engine, text, arguments={}, watch=quiet, network="none").image_id


def outcomes(engine: Engine, image: str) -> dict[str, Check]:
    return {check.name: check for check in verify.verify(engine, image, MANIFEST, FACTS).checks}


@dataclass(frozen=True, kw_only=True)
class Broken:
    """One broken promise: who has to say so, in what words, and which checks cannot but fail along."""

    kind: str
    check: str
    lines: tuple[str, ...]
    says: str
    along: tuple[str, ...] = ()
    case: str = "-"  # its report in the field, where it has one


def shell(*lines: str) -> tuple[str, ...]:
    return ("RUN <<'BREAK'", *lines, "BREAK")


def distribution(name: str, record: str = "", needs: str = "") -> tuple[str, ...]:
    """Shell lines that make a distribution out of nothing but its metadata."""
    info = f"{SITE}/{name}-1.0.dist-info"
    return (
        f"mkdir {info}",
        f"printf 'Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n{needs}' > {info}/METADATA",
        f"printf '{record}' > {info}/RECORD",
    )


BROKEN = {
    "torch says that it was built for CUDA": Broken(
        case="A01",
        kind="torch_rocm",
        check="torch is a ROCm build",
        lines=shell(f"sed -i 's/^hip = .*/hip = None/; s/^cuda = .*/cuda = \"13.0\"/' {SITE}/torch/version.py"),
        says="is no ROCm build: hip=None, cuda=13.0",
        along=(SEAL,),  # the file is sealed
    ),
    "a sealed file has another byte, with its old size and time": Broken(
        kind="seal",
        check=SEAL,
        lines=shell(
            f"touch -r {SITE}/triton/__init__.py /tmp/time",
            f"sed -i 's/__version__/__verSion__/' {SITE}/triton/__init__.py",
            f"touch -r /tmp/time {SITE}/triton/__init__.py",
        ),
        says="triton: not the bytes of its RECORD",
    ),
    "a second distribution brings triton": Broken(
        case="A16",
        kind="owners",
        check="every sealed module has one owner",
        lines=shell(*distribution("rogue", "triton/__init__.py,,\\n")),
        says="rogue-1.0",
        along=(SEAL,),  # a second owner is a breach of the seal
    ),
    "torch_shm_manager lost its permission": Broken(
        kind="executable",
        check="torch_shm_manager can be executed",
        lines=shell(f"chmod -x {SITE}/torch/bin/torch_shm_manager"),
        says="may not be executed",
    ),
    "a source was edited": Broken(
        kind="source",
        check="vime is what its record says",
        lines=shell("echo >> /opt/vime/README.md"),
        says="files that differ from the commit: README.md",
    ),
    "the mask's patch was taken back": Broken(
        kind="proof",
        check="vime does what engine-mask.patch is for",
        lines=shell(f"sed -i 's/    if not hip:/    if hip:/' /opt/vime/{ENGINE}"),
        says="of 2 GPUs an engine with 1 from 1 on has HIP_VISIBLE_DEVICES=1, not 1,0",
        along=(SEAL, "vime is what its record says"),  # whose file was changed
    ),
    "a source has a file more": Broken(
        kind="source",
        check="megatron is what its record says",
        lines=shell("touch /opt/Megatron-LM/megatron/extra.py"),
        says="files that are in no commit: megatron/extra.py",
    ),
    "another version of vLLM is installed": Broken(
        case="G05",
        kind="version",
        check="vllm has the version of its tag",
        lines=shell(f"sed -i 's/^Version: .*/Version: 0.30.0/' {SITE}/vllm-*.dist-info/METADATA"),
        says="vllm 0.30.0 is installed, the tag is v0.29.0",
        along=(SEAL,),  # the file is sealed
    ),
    "a module has code for another GPU": Broken(
        case="F11",
        kind="device_code",
        check="vllm has device code for every GPU target",
        lines=shell(f"sed -i 's/gfx942/gfx90a/g' {SITE}/vllm/_moe_C_stable_libtorch.abi3.so"),
        says="vllm/_moe_C_stable_libtorch.abi3.so: wanted gfx942, found gfx90a",
        along=(SEAL,),  # the file is sealed
    ),
    "a folder hides a part of the checkout": Broken(
        case="B20",
        kind="import",
        check="vime_plugins imports",
        lines=shell(f"mkdir {SITE}/vime_plugins", f"touch {SITE}/vime_plugins/__init__.py"),
        says="site-packages/vime_plugins/__init__.py, not only from /opt/vime",
    ),
    "a compiled module that no package imports is torn": Broken(
        case="B16",
        kind="loads",
        check="the compiled modules of torch-memory-saver load",
        lines=shell(f"truncate -s 100 {SITE}/torch_memory_saver_hook_mode_preload.abi3.so"),
        says="torch_memory_saver_hook_mode_preload: ImportError",
        along=(SEAL, ONE_COPY),  # the file is sealed; a process of all modules needs this one too
    ),
    "vime takes a name that vLLM does not have": Broken(
        case="G01",
        kind="api_window",
        check="vllm has every name that vime imports from it",
        lines=shell("echo 'from vllm.entrypoints.openai import FrontendArgs' >> /opt/vime/vime/rollout/memory.py"),
        says="it is now in vllm.entrypoints.launchers.cli_args",
        along=("vime is what its record says", SEAL),  # the file is in the checkout, which is sealed
    ),
    "Megatron, as patched, takes a name that vime does not have": Broken(
        kind="api_window",
        check="vime has every name that megatron imports from it",
        lines=shell(
            "sed -i 's/import register_routing_replay/import register_replay/' "
            "/opt/Megatron-LM/megatron/core/transformer/moe/router.py"
        ),
        says="vime.utils.routing_replay.register_replay, imported at megatron/core/transformer/moe/router.py:11",
        along=("megatron is what its record says",),  # the file is in the checkout
    ),
    "a requirement is gone": Broken(
        case="A25",
        kind="pip_check",
        check="pip check shows nothing new",
        lines=shell(f"rm -r {SITE}/xxhash-*.dist-info"),
        says="requires xxhash, which is not installed",
    ),
    "a compiled distribution does not import with this numpy": Broken(
        case="B18",
        kind="numpy_users",
        check="whatever compiled needs numpy imports with the one installed",
        lines=shell(
            *distribution("abi", "abi/__init__.py,,\\nabi/x.so,,\\n", "Requires-Dist: numpy\\n"),
            f"mkdir {SITE}/abi",
            f"echo 'raise ImportError(\"numpy.core.multiarray failed\")' > {SITE}/abi/__init__.py",
        ),
        says="abi: ImportError: numpy.core.multiarray failed",
    ),
    "a second copy of the HIP runtime comes into the process": Broken(
        case="F12",
        kind="one_copy",
        check=ONE_COPY,
        lines=shell(
            "mkdir /opt/other",
            # Of two that call themselves the same, the second would never be loaded.
            "sed 's/libamdhip64.so.5/libamdhip64.so.7/g' /usr/lib/libamdhip64.so > /opt/other/libamdhip64.so.7",
            f"echo 'import ctypes; ctypes.CDLL(\"/opt/other/libamdhip64.so.7\")' > {SITE}/other.pth",
        ),
        says="libamdhip64: /opt/other/libamdhip64.so.7, /usr/lib/x86_64-linux-gnu/libamdhip64.so",
    ),
    "the installed Ray reads another variable": Broken(
        case="F03",
        kind="env_read",
        check="every variable is one that its program reads",
        lines=shell(f"sed -i s/NOSET_HIP/NOSET_ROCR/g {SITE}/ray/_private/accelerators/amd_gpu.py"),
        says="RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES: ray 2.56.0 has no such name",
    ),
    "a distribution that was taken out is back": Broken(
        case="H14",
        kind="absent",
        check="tilelang is absent",
        lines=shell(*distribution("tilelang")),
        says="tilelang 1.0 is installed",
    ),
    "a variable has another value": Broken(
        kind="env",
        check="Python sees CUDA_DEVICE_MAX_CONNECTIONS as declared",
        lines=("ENV CUDA_DEVICE_MAX_CONNECTIONS=8",),
        says="CUDA_DEVICE_MAX_CONNECTIONS is '8', wanted '1'",
    ),
    "a forbidden variable is there": Broken(
        case="F04",
        kind="env",
        check="Python sees ROCR_VISIBLE_DEVICES absent",
        lines=("ENV ROCR_VISIBLE_DEVICES=",),
        says="ROCR_VISIBLE_DEVICES is '', wanted absent",
    ),
    "a variable of the base comes through": Broken(
        kind="env",
        check="Python sees NVTE_FLASH_ATTN absent",
        lines=shell(f"rm {SITE}/vime-image-env.pth"),
        says="NVTE_FLASH_ATTN is '0', wanted absent",
        along=("Python sees NVTE_FUSED_ATTN absent",),  # one file drops them all
    ),
    "the image starts elsewhere": Broken(
        kind="config",
        check="the image starts in its working directory",
        lines=("WORKDIR /opt",),
        says="WorkingDir of the image is '/opt', wanted '/opt/vime'",
    ),
    "the image starts something else": Broken(
        kind="config",
        check="the image starts with its entry point",
        lines=('ENTRYPOINT ["bash"]',),
        says="Entrypoint of the image is ['bash'], wanted ['sleep', 'infinity']",
    ),
    "the label names a GPU that it was not built for": Broken(
        kind="config",
        check="the image names the GPU targets that it was built for",
        lines=("LABEL vime-image.gpu_targets=gfx950",),
        says="gpu_targets of the image is 'gfx950', wanted 'gfx942'",
    ),
}


@pytest.mark.parametrize("case", sorted(BROKEN))
def test_an_image_that_breaks_one_promise_is_failed_by_its_check(
    engine: Engine, good: str, case: str, caught: Catches
) -> None:
    broken = BROKEN[case]
    found = outcomes(engine, changed(engine, good, *broken.lines))
    assert (found[broken.check].kind, found[broken.check].outcome) == (broken.kind, "failed")
    assert broken.says in found[broken.check].detail
    others = {name: check.detail for name, check in found.items() if check.outcome != "passed"}
    assert set(others) == {broken.check, *broken.along}, others
    check = found[broken.check]
    said = next(line for line in check.detail.splitlines() if broken.says in line)
    caught(case, Row(broken.case, "verify", check.name, said, check.seconds))


def test_a_source_s_own_tests_run_when_they_are_asked_for(engine: Engine, good: str, tmp_path: Path) -> None:
    """Without pytest they could not; with it, each file has its outcome."""
    names = {f"vime's own {path} passes" for path in MANIFEST.sources["vime"].tests}
    assert names
    found = {check.name: check for check in verify.verify(engine, good, MANIFEST, FACTS, tests=True).checks}
    assert {name: found[name].outcome for name in names} == dict.fromkeys(names, "could not run")
    assert names.isdisjoint(outcomes(engine, good))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version=3.11"]
    subprocess.run([*command, f"--dest={tmp_path}", "pytest==9.2.0"], check=True, capture_output=True)
    broken = "/opt/vime/tests/utils/test_vllm_config.py"
    lines = (
        "COPY . /tmp/wheels",
        *shell(
            f"{PYTHON} -m pip install --quiet --no-index --find-links /tmp/wheels pytest",
            f"echo 'assert 0' >> {broken}",
        ),
    )
    text = "\n".join([f"FROM {good}", *lines, ""])
    image = buildkit.build(engine, text, arguments={}, watch=quiet, context=tmp_path, network="none").image_id
    found = {check.name: check for check in verify.verify(engine, image, MANIFEST, FACTS, tests=True).checks}
    outcome = {path.rpartition("_")[2]: found[f"vime's own {path} passes"] for path in MANIFEST.sources["vime"].tests}
    assert (outcome["engine.py"].outcome, outcome["config.py"].outcome) == ("passed", "failed")
    assert "1 passed" in outcome["engine.py"].detail
    assert "assert 0" in outcome["config.py"].detail


def test_every_kind_of_check_is_broken_above() -> None:
    checks = checklist.wanted(MANIFEST, FACTS, finished=True)["checks"]
    assert isinstance(checks, list)
    assert {check["kind"] for check in checks} == {broken.kind for broken in BROKEN.values()}


def test_an_import_that_hangs_crashes_or_ends_the_process_fails_alone(engine: Engine, good: str) -> None:
    """Three packages in one image; all checks still have their outcome."""
    site = f"{SITE}/torch_memory_saver/__init__.py"
    found = outcomes(engine, changed(engine, good, *shell(f"echo 'import os; os.abort()' >> {site}",
        "echo 'import os; os._exit(0)' >> /opt/vime/vime_plugins/__init__.py")))  # fmt: skip
    failed = {name: check.detail for name, check in found.items() if check.outcome != "passed"}
    assert failed["torch_memory_saver imports"].startswith("exit code -6")
    assert failed["vime_plugins imports"].startswith("exit code 0")
    along = {SEAL, ONE_COPY, "vime is what its record says"}
    assert set(failed) == {"torch_memory_saver imports", "vime_plugins imports", *along}


# What proves nothing


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "builder", "verify", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)


def test_what_could_not_run_passes_unless_all_has_to_be_tried(engine: Engine, good: str, tmp_path: Path) -> None:
    image = changed(engine, good, *shell("rm /usr/bin/git"))
    found = outcomes(engine, image)
    untried = [check for check in found.values() if check.outcome == "could not run"]
    assert {check.kind for check in untried} == {"source"}
    assert {check.detail for check in untried} == {"the image has no git"}
    assert [check.detail for check in found.values() if check.outcome == "failed"] == []
    file = tmp_path / "report.xml"
    assert run(image, f"--report={file}").returncode == 0
    (suite,) = list(junitparser.JUnitXml.fromfile(str(file)))
    assert (suite.tests, suite.failures, suite.skipped) == (len(found), 0, len(untried))
    strictly = run(image, "--strict")
    assert (strictly.returncode, f"{len(untried)} of {len(found)} checks could not run" in strictly.stderr) == (
        VerificationError.exit_code,
        True,
    )


def test_a_report_without_a_format_is_refused_before_anything_runs(good: str, tmp_path: Path) -> None:
    done = run(good, f"--report={tmp_path / 'report.doc'}")
    assert (done.returncode, "no report has the ending '.doc'" in done.stderr) == (2, True)


def test_a_program_that_prints_passed_and_exits_0_has_verified_nothing(engine: Engine, good: str) -> None:
    forged = shell(f"rm {PYTHON}", f"printf '#!/bin/sh\\necho checks: 43 passed, 0 failed, 0 could not run\\n' > {PYTHON}",
                   f"chmod +x {PYTHON}")  # fmt: skip
    verified = verify.verify(engine, changed(engine, good, *forged), MANIFEST, FACTS)
    assert "verification did not run: exit code 0 and no result" in str(verified.error)


def test_what_an_image_says_of_itself_is_not_asked_for(engine: Engine, good: str) -> None:
    """Its program prints passed, its list is empty, its proof says that all is well; and torch is another."""
    home = lists.HOME
    image = changed(
        engine, good,
        *shell(f"echo 'print(\"verification ran, and nothing failed\")' > {home}/bin/check.py",
               f"sed -i 's/hip = .*/hip = None/' {SITE}/torch/version.py",
               f"echo '{{\"checks\": []}}' > {home}/checks.json"),
        f"RUN {PYTHON} {home}/bin/check.py proof {home}/checks.json",
    )  # fmt: skip
    assert outcomes(engine, image)["torch is a ROCm build"].outcome == "failed"


def test_a_container_without_its_programs_has_verified_nothing(engine: Engine, good: str, tmp_path: Path) -> None:
    image = changed(engine, good, *shell(f"rm {PYTHON}"))
    file = tmp_path / "report.json"
    done = run(image, f"--report={file}")
    assert (done.returncode, "verification did not run" in done.stderr) == (VerificationError.exit_code, True)
    (check,) = json.loads(file.read_text())["checks"]
    assert (check["outcome"], "verification did not run" in check["detail"]) == ("failed", True)


FORGED = {
    "the step is gone": "true",
    "the program is gone": f"rm {lists.HOME}/bin/check.py",
    "the list is empty": (
        f'cd /; echo \'{{"python": "{PYTHON}", "checks": []}}\' > {lists.HOME}/checks.json\n'
        f"{PYTHON} {lists.HOME}/bin/check.py run {lists.HOME}/checks.json --output {lists.HOME}/verification.json"
    ),
    "the result is made up": (
        f'echo \'{{"schema": 1, "counts": {{"failed": 0}}, "checks": []}}\' > {lists.HOME}/verification.json'
    ),
    "the result is another list's": (
        f"cp {lists.HOME}/checks.json /tmp/kept\n"
        f'echo \'{{"python": "{PYTHON}", "checks": [{{"name": "x", "hint": "", "kind": "owners"}}]}}\' '
        f"> {lists.HOME}/checks.json\n"
        f"{PYTHON} -B {lists.HOME}/bin/check.py run {lists.HOME}/checks.json --output {lists.HOME}/verification.json\n"
        f"cp /tmp/kept {lists.HOME}/checks.json"
    ),
}


@pytest.mark.parametrize("case", sorted(FORGED))
def test_a_build_whose_verification_is_forged_ends_without_an_image(
    engine: Engine, order: build.Order, good: str, case: str, caught: Catches
) -> None:
    assert good
    started = time.monotonic()
    text, count = re.subn(
        r"(<<'VERIFY'\n).*?(\nVERIFY\n)", lambda match: match[1] + FORGED[case] + match[2],
        render.render(MANIFEST, FACTS), flags=re.DOTALL,
    )  # fmt: skip
    assert count == 1
    with pytest.raises(BuildFailedError) as failed:
        buildkit.build(engine, text, arguments=order.build_arguments, watch=quiet, network="none")
    seconds = time.monotonic() - started
    lines = [line for line in failed.value.log if re.search(r"verification did not run|can't open file", line)]
    assert lines, str(failed.value)
    caught(f"a forged verification: {case}", Row("D02", "rehearse", "the proof", lines[0], seconds))


def test_the_proof_in_the_image_names_its_programs_and_its_list(engine: Engine, good: str) -> None:
    with engine.container(good, ["cat", f"{lists.HOME}/verification.json"]) as container:
        assert container.wait() == 0
        proof = json.loads(container.output())
    assert {"program_sha256", "list_sha256", "counts"} <= set(proof)
