"""Failures as a real engine tells them, and what is said about each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from builder import buildkit, failure, lists, manifest
from builder.engine import Engine
from builder.errors import BuildFailedError
from builder.trace import CLIPPED, Event

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
MOUNT = f"--mount={lists.cache_mount('logs')}"
CLIPPED_LINES = 400_000  # of 7 bytes: more than BuildKit passes on of one step


def quiet(_: Event) -> None:
    """Watch nothing."""


def explained(engine: Engine, tiny: str, step: str, script: str, options: str = "") -> BuildFailedError:
    text = f"FROM {tiny}\nRUN {options} <<'{step}'\n{script}\n{step}\n"
    with pytest.raises(BuildFailedError) as caught:
        buildkit.build(engine, text, arguments={}, watch=quiet, network="none")
    return failure.explain(caught.value, MANIFEST, tiny)


def summary(error: BuildFailedError) -> str:
    return str(error.problems[-1])


def test_a_failing_compile_step_shows_its_first_error_though_it_is_far_from_the_end(engine: Engine, tiny: str) -> None:
    script = (
        "echo 'compiling for gfx942 with 2 jobs'\necho '[2/9] hipcc a.hip'\n"
        'echo "a.hip:3:1: error: unknown type name \'foo\'"\nfor i in $(seq 99); do echo "b.hip:$i:1: error: no"; done\n'
        "exit 1"
    )
    error = explained(engine, tiny, "BUILD_VLLM", script)
    assert (error.step, error.status, len(error.log)) == ("BUILD_VLLM", 1, 102)
    assert "BUILD_VLLM: compile error; first error: a.hip:3:1: error: unknown type name 'foo'" in summary(error)
    assert summary(error).startswith(f"{MANIFEST.where('sources', 'vllm')}: error: ")


def test_a_killed_step_is_out_of_memory_and_says_how_many_jobs_ran(engine: Engine, tiny: str) -> None:
    error = explained(
        engine, tiny, "BUILD_VLLM", "echo 'compiling for gfx942 with 32 jobs'\nbash -c 'kill -KILL $$'\nexit $?"
    )
    assert error.status == 137
    assert "BUILD_VLLM: out of memory; 32 jobs ran at once" in summary(error)


def test_a_killed_child_is_out_of_memory_too(engine: Engine, tiny: str) -> None:
    script = "(kill -KILL $BASHPID) || { echo 'c++: fatal error: Killed signal terminated program cc1plus'; exit 1; }"
    error = explained(engine, tiny, "BUILD_TORCH_MEMORY_SAVER", script)
    assert error.status == 1
    assert "BUILD_TORCH_MEMORY_SAVER: out of memory" in summary(error)


def test_a_full_disk_in_a_step_is_told_from_the_compile_error_that_follows(engine: Engine, tiny: str) -> None:
    script = (
        "for i in $(seq 300000); do echo 0123456789; done > /small/file && exit 0\necho 'a.hip: error: cut'; exit 1"
    )
    error = explained(engine, tiny, "BUILD_VLLM", script, "--mount=type=tmpfs,target=/small,size=65536")
    assert "No space left on device" in "\n".join(error.log)
    assert "BUILD_VLLM: disk full" in summary(error)
    assert "docker builder prune --all --filter type=regular" in summary(error)


def test_a_clipped_log_is_said_to_be_clipped(engine: Engine, tiny: str) -> None:
    error = explained(engine, tiny, "LINKS", f"seq {CLIPPED_LINES}\nexit 3")
    assert CLIPPED in "\n".join(error.log)
    assert "LINKS: failed; the log of LINKS was clipped by the engine" in summary(error)


def test_a_guard_s_refusal_is_shown_at_the_key_that_it_names(engine: Engine, tiny: str) -> None:
    refusal = (
        "judge: REQUIREMENTS_VIME: nvidia-cublas 1.0 is forbidden as nvidia-*: a CUDA library\n"
        "    change images/rocm7.14.yaml, sources.vime.requirements or forbidden.nvidia-*"
    )
    error = explained(engine, tiny, "REQUIREMENTS_VIME", f"echo '{refusal}'\nexit 1")
    requirements, forbidden = (
        MANIFEST.where("sources", "vime", "requirements"),
        MANIFEST.where("forbidden", "nvidia-*"),
    )
    assert summary(error).startswith(f"{requirements}: error: REQUIREMENTS_VIME: refused by the judge")
    assert f"forbidden.nvidia-*: {forbidden}" in summary(error)


def test_a_fault_of_the_dockerfile_is_shown_at_its_line(engine: Engine, tiny: str) -> None:
    with pytest.raises(BuildFailedError) as caught:
        buildkit.build(engine, f"FROM {tiny}\nRUNN true\n", arguments={}, watch=quiet)
    error = failure.explain(caught.value, MANIFEST)
    assert error.step == ""
    assert summary(error).startswith("dockerfiles/Dockerfile.rocm7.14:2:1: error: the build: Dockerfile syntax")


def test_a_base_that_is_not_there_is_named(engine: Engine) -> None:
    with pytest.raises(BuildFailedError) as caught:
        buildkit.build(engine, "FROM 127.0.0.1:9/nobody/nothing:1\nRUN true\n", arguments={}, watch=quiet)
    assert "the build: " in summary(failure.explain(caught.value, MANIFEST, "127.0.0.1:9/nobody/nothing:1"))


def test_the_whole_log_outlives_its_step_and_the_message_s_command_reads_it(
    engine: Engine, tiny: str, tmp_path: Path
) -> None:
    log = f"{lists.CACHES['logs']}/{MANIFEST.name}.BUILD_VLLM.log"
    script = (
        f"echo 'compiling for gfx942 with 2 jobs'\nseq {CLIPPED_LINES} > {log}\necho 'x.hip:1:1: error: no'; exit 1"
    )
    text = summary(explained(engine, tiny, "BUILD_VLLM", script, MOUNT))
    command = text.partition("whole log, into build/logs: ")[2].partition("\n")[0]
    assert command == failure.whole_log(tiny)
    for lines in (CLIPPED_LINES, 5):  # the second copy is no cached one
        if lines == 5:
            explained(engine, tiny, "BUILD_VLLM", f"seq 5 > {log}\nexit 1", MOUNT)
        environment = os.environ | ({"DOCKER_HOST": engine.address} if engine.address.startswith("unix://") else {})
        # Two copies within one second would be one.
        now = command.replace("$(date +%s)", str(lines))
        done = subprocess.run(
            ["bash", "-c", now], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found = (tmp_path / "build/logs" / Path(log).name).read_text().splitlines()
        assert found == [str(number) for number in range(1, lines + 1)]
