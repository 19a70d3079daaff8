"""The whole path on a real engine: the committed Dockerfile on the stand-in base, and one thing broken at a time."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from catches import Catches, Row
from faults import BUILD, Fault
from manifests import REAL, changed

from benchmarks import bumps, reads
from builder import build, buildkit, facts, manifest, render, standin, verify
from builder.build import Order
from builder.engine import Engine
from builder.errors import BuildFailedError, TimeLimitError
from builder.report import Report
from builder.trace import Event

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
FACTS = facts.of(MANIFEST, ROOT)
NOWHERE = "1" * 40
SITE = FACTS.python.site_packages

Change = Callable[[Path], None]
Make = Callable[..., Order]


def quiet(_: Event) -> None:
    """Watch nothing."""


def replace(path: str, old: str, new: str) -> Change:
    """A change of one stand-in file."""

    def change(standins: Path) -> None:
        text = (standins / path).read_text()
        assert old in text, f"{path} no longer has {old!r}"
        (standins / path).write_text(text.replace(old, new))

    return change


def run(engine: Engine, image: str, *command: str) -> str:
    with engine.container(image, command) as container:
        code, output = container.wait(), container.output()
    assert code == 0, output
    return output


def failure(engine: Engine, ordered: Order) -> BuildFailedError:
    kept: list[Report] = []
    with pytest.raises(BuildFailedError) as caught:
        build.make(engine, ordered, quiet, kept.append)
    assert engine.image_id(ordered.tag) is None
    (report,) = kept
    assert (report.image_id, report.verdict, report.pins) == ("", "failed", "overridden")
    assert [step.name for step in report.steps if step.failed] == [caught.value.step]
    assert [(check.name, caught.value.step in check.detail) for check in report.checks] == [
        ("the image is built", True)
    ]
    return caught.value


def docker(engine: Engine, *arguments: str, buildkit_is_on: bool = True) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DOCKER_BUILDKIT": "1" if buildkit_is_on else "0"}
    if engine.address.startswith("unix://"):
        environment["DOCKER_HOST"] = engine.address
    text = (ROOT / MANIFEST.dockerfile).read_text()
    return subprocess.run(
        ["docker", *arguments, "-"], input=text, env=environment, capture_output=True, text=True, check=False
    )


# Nothing broken


def test_a_clean_rehearsal_passes_every_check_and_gets_its_tag(engine: Engine, clean: tuple[Order, Report]) -> None:
    ordered, report = clean
    assert [check.detail for check in report.checks if check.outcome != "passed"] == []
    assert (report.tag, engine.image_id(ordered.tag)) == (ordered.tag, report.image_id)
    assert (
        report.headline
        == f"rocm7.14 for gfx942: {len(report.checks)} passed, 0 failed, 0 could not run (pins: overridden)"
    )


def test_a_verification_that_did_not_end_is_a_failed_check_of_the_report(
    engine: Engine, clean: tuple[Order, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "TIME_LIMIT_S", 0.01)
    kept: list[Report] = []
    with pytest.raises(TimeLimitError):
        build.make(engine, clean[0], quiet, kept.append)
    (report,) = kept
    assert (report.image_id, report.tag, report.verdict) == (clean[1].image_id, None, "failed")
    assert "the time limit of 0.01 s was reached" in report.checks[0].detail


def test_the_image_holds_its_proof_its_records_and_its_plans(engine: Engine, clean: tuple[Order, Report]) -> None:
    listed = run(engine, clean[1].image_id, "find", "/opt/vime-image", "-type", "f").split()
    names = {path.removeprefix("/opt/vime-image/") for path in listed}
    assert names == {
        *(f"bin/{name}.py" for name in ("check", "device", "imports", "installer", "judge", "kinds", "seal", "source")),
        *("bin/checked.py", "bin/trial.py"),
        *(f"sources/{name}.json" for name in MANIFEST.sources),
        "patches/vime/engine-mask.patch",
        *(f"{folder}/REQUIREMENTS_{name}.json" for folder in ("plans", "sets") for name in ("VIME", "VLLM")),
        *("requirements/vllm/common.txt", "requirements/vllm/rocm.txt"),
        *("checks.json", "constraints.txt", "gpu_targets", "manifest.json", "policy.json", "seal.json"),
        "verification.json",
    }
    proof = json.loads(run(engine, clean[1].image_id, "cat", "/opt/vime-image/verification.json"))
    in_a_build = len(clean[1].checks) - sum(check.kind == "config" for check in clean[1].checks)
    assert proof["counts"] == {"passed": in_a_build, "failed": 0, "could_not_run": 0}


def test_nothing_that_the_image_does_not_need_is_left_behind(engine: Engine, clean: tuple[Order, Report]) -> None:
    found = run(
        engine,
        clean[1].image_id,
        "find",
        "/tmp",
        "/root",
        "/opt",
        "/var/log",
        "-maxdepth",
        "2",
        "-newer",
        "/opt/standin",
    )
    kept = ("/opt/vime", "/opt/Megatron-LM", "/opt/venv")
    assert [path for path in found.split() if path.count("/") == 2 and not path.startswith(kept)] == []


def test_the_constraints_are_the_base_s_full_versions_and_nothing_else(
    engine: Engine, clean: tuple[Order, Report]
) -> None:
    lines = run(engine, clean[1].image_id, "cat", "/opt/vime-image/constraints.txt").splitlines()
    assert f"torch=={FACTS.distributions['torch']}" in lines
    assert "vllm==0.29.0+rocm714" in lines
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.+!]+", line)] == []


def test_torch_is_the_base_s_own_after_all_steps(engine: Engine, clean: tuple[Order, Report]) -> None:
    program = "import torch, numpy; print(torch.__version__, torch.version.cuda, numpy.__version__)"
    found = run(engine, clean[1].image_id, FACTS.python.executable, "-c", program).split()
    assert found == [FACTS.distributions["torch"], "None", "1.26.4"]


def test_docker_build_of_the_committed_file_gives_the_same_image(engine: Engine, clean: tuple[Order, Report]) -> None:
    arguments = [f"--build-arg={name}={value}" for name, value in clean[0].build_arguments.items()]
    done = docker(engine, "build", "--quiet", "--network=none", "--provenance=false", *arguments)
    assert done.stdout.strip() == clean[1].image_id, done.stderr


def test_the_classic_builder_stops_at_the_first_step(engine: Engine, clean: tuple[Order, Report]) -> None:
    base = clean[0].arguments["BASE_IMAGE"]
    done = docker(engine, "build", f"--build-arg=BASE_IMAGE={base}", buildkit_is_on=False)
    assert done.returncode != 0
    assert "the --mount option requires BuildKit" in done.stderr
    assert done.stdout.count("RUN") == 1


def test_a_second_rehearsal_runs_no_step(engine: Engine, clean: tuple[Order, Report]) -> None:
    again = build.make(engine, clean[0], quiet)
    assert [step.name for step in again.steps if not step.cached] == []
    assert again.image_id == clean[1].image_id


def test_after_a_change_of_vime_s_commit_the_compiles_are_cached(engine: Engine, clean: tuple[Order, Report]) -> None:
    bare = "/opt/standin/git/github.com/vllm-project/vime"
    later = run(engine, clean[0].arguments["BASE_IMAGE"], "git", "-C", bare, "rev-parse", "refs/heads/next").strip()
    arguments = {**clean[0].build_arguments, "VIME_COMMIT": later}
    built = buildkit.build(engine, render.render(MANIFEST, FACTS), arguments=arguments, watch=quiet, network="none")
    cached = {step.name: step.cached for step in built.steps}
    assert cached["BUILD_VLLM"]
    assert cached["BUILD_TORCH_MEMORY_SAVER"]
    assert cached["REQUIREMENTS_VLLM"]
    assert not cached["FETCH_VIME"]


def test_a_requirement_of_vime_s_runs_what_reads_it_and_the_fetch_behind_it(
    engine: Engine, clean: tuple[Order, Report]
) -> None:
    """BuildKit's own word on what the table of the benchmark says; no earlier run has had this requirement."""
    version = f'version: "<=0.4.2,!=0.0.{uuid.uuid4().int % 10**9}"'
    text = render.render(changed(REAL, ("version: ==0.4.2", version)), FACTS)
    ran = bumps.ran(engine, text, clean[0].build_arguments, "a requirement of vime's")
    assert [step for step in ran if step != "FETCH_MEGATRON"] == reads.dependents("vime_set")


@pytest.mark.parametrize("targets", [("gfx950",), ("gfx942", "gfx950")])
def test_every_target_of_the_manifest_can_be_rehearsed(engine: Engine, order: Make, targets: tuple[str, ...]) -> None:
    report = build.make(engine, order(targets=targets), quiet)
    assert [check.detail for check in report.checks if check.outcome != "passed"] == []
    assert report.gpu_targets == targets


# One thing broken


def test_a_commit_that_is_not_the_tag_s_is_named_with_the_one_that_is(engine: Engine, order: Make) -> None:
    ordered = order()
    wrong = order(arguments={"VLLM_COMMIT": NOWHERE})
    error = failure(engine, wrong)
    assert error.step == "BUILD_VLLM"
    assert (
        f"v0.29.0 of https://github.com/vllm-project/vllm is {ordered.arguments['VLLM_COMMIT']}, not {NOWHERE}"
        in str(error)
    )
    assert "sources.vllm" in str(error)


def test_a_patch_that_does_not_apply_is_named_with_its_source(engine: Engine, order: Make) -> None:
    path = "sources/vime/docker/amd_patch/latest/megatron.patch"
    text = (standin.STANDINS / path).read_text()
    line = next(line for line in text.splitlines() if line.startswith("-") and not line.startswith("---"))
    error = failure(engine, order(replace(path, line, f"{line} that upstream has changed")))
    assert error.step == "FETCH_MEGATRON"
    assert "sources.megatron: /opt/vime/docker/amd_patch/latest/megatron.patch does not apply" in str(error)


def test_a_requirement_that_wants_a_newer_torch_is_refused_with_its_chain(engine: Engine, order: Make) -> None:
    error = failure(
        engine, order(replace("sources/vime/requirements.txt", "accelerate", "accelerate\nwants-newer-torch"))
    )
    assert error.step == "REQUIREMENTS_VIME"
    for part in ("wants-newer-torch", "torch>2.12.0", FACTS.distributions["torch"], "sources.vime.requirements"):
        assert part in str(error)


def test_a_missing_name_is_reported_with_its_line_and_its_new_place(engine: Engine, order: Make) -> None:
    line = "from vllm.entrypoints.openai.cli_args import FrontendArgs"
    path = "sources/vime/vime/rollout/memory.py"

    def change(standins: Path) -> None:
        (standins / path).write_text(f"{line}\n{(standins / path).read_text()}")

    error = failure(engine, order(change))
    assert error.step == "VERIFY"
    assert "vllm.entrypoints.openai.cli_args.FrontendArgs, imported at vime/rollout/memory.py:1" in str(error)
    assert "it is now in vllm.entrypoints.launchers.cli_args" in str(error)


@pytest.mark.parametrize("fault", BUILD, ids=lambda fault: fault.title.replace(" ", "-"))
def test_what_only_a_build_can_see_stops_it_at_its_step(
    engine: Engine, order: Make, fault: Fault, caught: Catches
) -> None:
    assert fault.trees
    ordered = order(fault.trees)
    started = time.monotonic()
    error = failure(engine, ordered)
    seconds = time.monotonic() - started
    said = str(error)
    assert error.step == fault.by
    assert [fact for fact in fault.says if fact not in said] == [], said
    assert error.problems[-1].where, "the manifest's line behind it"
    line = next(line for line in said.splitlines() if fault.says[0] in line)
    caught(fault.title, Row(fault.case, "rehearse", error.step, line, seconds))


def test_a_program_of_torch_that_may_not_be_executed_stops_the_build_before_its_first_compile(
    engine: Engine, order: Make, caught: Catches
) -> None:
    """The manifest has to name it: so read, the base is broken."""
    text = REAL.read_text(encoding="utf-8")
    named = text[text.index("executables:\n") : text.index("# In the order")]
    ordered = dataclasses.replace(order(), manifest=changed(REAL, (named, "")))
    started = time.monotonic()
    error = failure(engine, ordered)
    seconds = time.monotonic() - started
    assert error.step == "LINKS"
    said = f"{SITE}/torch/bin/torch_shm_manager may not be executed: name it in executables"
    assert said in str(error)
    caught("a base whose torch_shm_manager may not be executed", Row("-", "rehearse", "LINKS", said, seconds))


def test_a_failed_check_leaves_the_image_without_a_tag(engine: Engine, clean: tuple[Order, Report]) -> None:
    """What passes in the build and fails afterwards: an image whose programs were forged."""
    forged = f'FROM {clean[0].tag}\nRUN ["{FACTS.python.executable}", "-m", "pip", "uninstall", "--yes", "vllm"]\n'
    built = buildkit.build(engine, forged, arguments={}, watch=quiet, network="none")
    from builder import verify  # noqa: PLC0415

    checks = {check.name: check for check in verify.verify(engine, built.image_id, MANIFEST, FACTS).checks}
    assert checks["vllm imports"].outcome == "failed"
    assert checks["the seal holds, every sealed file re-hashed"].outcome == "failed"
