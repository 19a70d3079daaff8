"""What is said about a failed step, from logs as the steps write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from manifests import IMAGES, SECOND

from builder import dockerfile, facts, failure, manifest, render
from builder.errors import BuildFailedError, Problem

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")

LOGS = {
    "disk full": "cp: error writing '/opt/x': No space left on device\n_C.hip:1: error: cannot write",
    "out of memory": "compiling for gfx942 with 32 jobs\nc++: fatal error: Killed signal terminated program cc1plus",
    "verification": "checks: 30 passed, 1 failed, 0 could not run\nfailed  vllm imports\n  No module named 'x'",
    "seal broken": "seal: REQUIREMENTS_VIME: torch: replaced 2.12.0+rocm7.14 -> 2.13.0",
    "pip finds no plan": "judge: REQUIREMENTS_VIME: pip finds no plan:\n    ERROR: ResolutionImpossible",
    "refused by the judge": "judge: REQUIREMENTS_VIME: nvidia-cublas 1.0 is forbidden as nvidia-*",
    "patch does not apply": "error: patch failed: a.py:3\nsource: sources.megatron: /opt/x.patch does not apply",
    "network": "fatal: unable to access 'https://x/': Could not resolve host: x\nsource: cannot fetch v1 of https://x",
    "commit does not match": f"source: sources.vllm: v1 of https://x is {'1' * 40}, not {'2' * 40}: change its commit",
    "source cannot be fetched": "fatal: couldn't find remote ref\nsource: sources.vllm: cannot fetch refs/tags/v1 of https://x",
    "compile error": "[2/9] hipcc a.hip\na.hip:3:1: error: unknown type name 'foo'\nninja: build stopped",
    "Dockerfile syntax": "dockerfile parse error on line 7: unknown instruction: RUNN (did you mean RUN?)",
    "base not found": "rocm/primus:v1: failed to resolve source metadata for docker.io/rocm/primus:v1: not there",
}


def explained(step: str, log: str, code: int = 1) -> Problem:
    lines = "".join(f"\n    {line}" for line in log.splitlines())
    error = BuildFailedError(Problem(f"step {step} failed: exit code {code}{lines}"), step=step)
    return failure.explain(error, MANIFEST).problems[-1]


@pytest.mark.parametrize("kind", sorted(LOGS))
def test_each_kind_of_failure_is_told_by_its_log_and_has_a_remedy(kind: str) -> None:
    problem = explained("BUILD_VLLM", LOGS[kind])
    assert problem.message.startswith(f"BUILD_VLLM: {kind}")
    assert problem.hint


def test_every_kind_has_a_log_that_shows_it() -> None:
    assert {kind.name for kind in failure.KINDS} == set(LOGS)


def test_a_killed_compiler_says_how_many_jobs_ran() -> None:
    assert "32 jobs ran at once" in explained("BUILD_VLLM", LOGS["out of memory"]).message
    assert explained("BUILD_VLLM", "compiling", code=137).message.startswith("BUILD_VLLM: out of memory")


def test_the_first_compile_error_is_shown_and_not_the_last_line() -> None:
    assert (
        "first error: a.hip:3:1: error: unknown type name 'foo'"
        in explained("BUILD_VLLM", LOGS["compile error"]).message
    )


def test_a_clipped_log_is_said_to_be_clipped() -> None:
    log = "[output clipped, log limit 2MiB reached]\na.hip:3:1: error: x"
    assert "the log of BUILD_VLLM was clipped by the engine" in explained("BUILD_VLLM", log).message


def test_the_key_that_the_log_names_is_shown_at_its_line() -> None:
    log = "judge: REQUIREMENTS_VIME: x is forbidden\n    change images/rocm7.14.yaml, forbidden.nvidia-*"
    assert explained("REQUIREMENTS_VIME", log).where == MANIFEST.where("forbidden", "nvidia-*")


def test_else_the_key_that_made_the_step_is_shown() -> None:
    assert explained("REQUIREMENTS_VIME", "x").where == MANIFEST.where("sources", "vime", "requirements")
    assert explained("BUILD_TOOLS", "x").where == MANIFEST.where("build_tools")


def test_a_seal_that_held_is_no_broken_one() -> None:
    log = "seal: BUILD_TOOLS: 13 distributions are as sealed\njudge: remove: 1 distributions, done\nrm: cannot remove"
    assert explained("REMOVE", log).message == "REMOVE: failed"


@pytest.mark.parametrize(
    ("kind", "log"),
    [
        ("compile error", "CMake Error at CMakeLists.txt:3 (find_package):\n  no hip\nninja: build stopped: x"),
        ("compile error", "ld.lld: error: undefined symbol: foo\nninja: build stopped: subcommand failed."),
        ("compile error", "building openssl support, timeouts\na.hip:3:1: error: no member 'killed'"),
        ("disk full", "tee: /root/.cache/vime-image-logs/x.log: No space left on device"),
        ("network", "judge: REQUIREMENTS_VLLM: pip finds no plan:\n    Temporary failure in name resolution"),
        ("network", "fatal: unable to access 'https://x/': SSL certificate problem: self-signed certificate"),
        ("network", "error: RPC failed; curl 56 GnuTLS recv error (-54)\nsource: sources.vllm: cannot fetch v1 of x"),
        ("network", "curl: (28) Operation timed out after 30000 milliseconds"),
        ("out of memory", "FAILED: [code=137] CMakeFiles/_C.dir/a.hip.o\nninja: build stopped: subcommand failed."),
        ("out of memory", "FAILED: [code=9] CMakeFiles/_C.dir/a.hip.o\nninja: build stopped"),
        ("out of memory", "clang++: error: unable to execute command: Killed\nclang++: error: clang failed"),
        ("out of memory", "/bin/bash: line 9:    41 Killed                  /opt/venv/bin/python setup.py"),
        (
            "refused by the judge",
            "WARNING: Retrying after connection reset\njudge: X: cupy 1 is forbidden as cupy*: no",
        ),
        ("patch does not apply", "error: patch failed: a.py:3\nerror: a.py: patch does not apply"),
    ],
)
def test_a_failure_is_told_from_one_that_looks_like_it(kind: str, log: str) -> None:
    assert explained("BUILD_VLLM", log).message.startswith(f"BUILD_VLLM: {kind}")


def test_the_first_error_that_the_recipe_found_goes_before_those_in_the_tail() -> None:
    log = "b.hip:9:1: error: a later one\nfirst errors: a.hip:1:1: error: the first"
    assert "first error: a.hip:1:1: error: the first" in explained("BUILD_VLLM", log).message


def test_the_whole_log_is_read_and_not_the_shown_lines_alone() -> None:
    error = BuildFailedError(
        Problem("step BUILD_VLLM failed: exit code 1\n    the end"),
        step="BUILD_VLLM",
        status=1,
        log=("a.hip:1:1: error: far above", *["x"] * 500, "the end"),
    )
    explanation = failure.explain(error, MANIFEST)
    assert "first error: a.hip:1:1: error: far above" in explanation.problems[-1].message
    assert (explanation.step, explanation.status, explanation.log) == ("BUILD_VLLM", 1, error.log)


def test_every_key_that_a_refusal_names_is_shown_at_its_line() -> None:
    log = "judge: REQUIREMENTS_VIME: x 1 is old\n    change images/rocm7.14.yaml, sources.vime.requirements or removed"
    problem = explained("REQUIREMENTS_VIME", log)
    assert problem.where == MANIFEST.where("sources", "vime", "requirements")
    assert f"removed: {MANIFEST.where('removed')}" in problem.message


def test_a_common_word_is_no_key() -> None:
    assert explained("LINKS", "ln: removed sealed env links").where == MANIFEST.where("links")
    assert MANIFEST.named_in(
        "see images/rocm7.14.yaml, sealed\nor images/rocm7.14.yaml, env.VLLM_USE_MEGA_AOT_ARTIFACT."
    ) == [
        ("sealed",),
        ("env", "VLLM_USE_MEGA_AOT_ARTIFACT"),
    ]


def test_a_failed_check_is_named() -> None:
    log = "checks: 30 passed, 1 failed, 0 could not run\nfailed        vllm imports\n                hint: sources.vllm.modules"
    problem = explained("VERIFY", log)
    assert "failed: vllm imports" in problem.message
    assert problem.where == MANIFEST.where("sources", "vllm", "modules")


def test_the_command_for_the_whole_log_comes_only_where_there_is_one() -> None:
    compiling = explained("BUILD_VLLM", "compiling for gfx942 with 2 jobs\na.hip:1:1: error: x").hint or ""
    assert failure.whole_log(MANIFEST.base.reference) in compiling
    assert "whole log" not in (explained("BUILD_VLLM", LOGS["network"]).hint or "")
    assert "whole log" not in (explained("BUILD_TOOLS", LOGS["compile error"]).hint or "")


def test_the_command_to_try_asks_whom_the_step_asks() -> None:
    assert f"git ls-remote {MANIFEST.sources['vllm'].repository}" in (
        explained("BUILD_VLLM", LOGS["network"]).hint or ""
    )
    assert failure.ASK_INDEX in (explained("REQUIREMENTS_VLLM", LOGS["network"]).hint or "")
    assert failure.ASK_INDEX in (explained("BUILD_TOOLS", LOGS["network"]).hint or "")


def test_a_fault_of_the_dockerfile_is_shown_at_its_line() -> None:
    problem = failure.explain(BuildFailedError(Problem(LOGS["Dockerfile syntax"])), MANIFEST).problems[-1]
    assert str(problem.where) == "dockerfiles/Dockerfile.rocm7.14:7:1"


def test_a_cancelled_neighbour_was_not_out_of_memory() -> None:
    problem = explained("LINKS", "process did not complete successfully: exit code: 137: context canceled")
    assert problem.message == "LINKS: failed"


def test_an_unknown_failure_says_nothing_that_it_does_not_know() -> None:
    problem = explained("LINKS", "test: too many arguments")
    assert problem.message == "LINKS: failed"
    assert problem.hint is not None
    assert problem.hint.startswith("a shell before the step: ")


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_every_step_that_a_manifest_makes_has_a_key(path: Path) -> None:
    written = manifest.load(path)
    text = render.render(written, facts.of(written, ROOT))
    scripts = [i.name for i in dockerfile.parse(text) if i.keyword == "RUN" and i.heredocs]
    assert [name for name in scripts if failure.made_by(name, written) is None] == ["VERIFY"]


def test_a_wheel_that_is_not_reached_comes_with_the_address_to_try() -> None:
    second = manifest.load(SECOND)
    log = BuildFailedError(Problem("Could not fetch URL: connection timed out"), step="INSTALL_APEX")
    problem = failure.explain(log, second).problems[-1]
    assert problem.message == "INSTALL_APEX: network"
    assert problem.where == second.where("prebuilt", "apex")
    assert f"curl --head --location {second.prebuilt['apex'].address}" in str(problem.hint)


def test_a_step_with_a_script_can_be_looked_at_from_a_shell() -> None:
    command = f"python -m builder debug {MANIFEST.name} VERIFY"
    assert str(explained("VERIFY", "x").hint).endswith(command)
    rehearsed = failure.explain(BuildFailedError(Problem("x"), step="VERIFY"), MANIFEST, "vime-images/standin:x")
    assert str(rehearsed.problems[-1].hint).endswith(f"{command} --rehearsal")
    assert failure.explain(BuildFailedError(Problem("x")), MANIFEST).problems[-1].hint is None
