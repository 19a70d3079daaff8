"""What is said about a failed step, from logs as the steps write them."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_an_unknown_failure_says_nothing_that_it_does_not_know() -> None:
    problem = explained("LINKS", "test: too many arguments")
    assert (problem.message, problem.hint) == ("LINKS: failed", None)


def test_every_step_that_a_manifest_makes_has_a_key() -> None:
    text = render.render(MANIFEST, facts.of(MANIFEST, ROOT))
    scripts = [i.name for i in dockerfile.parse(text) if i.keyword == "RUN" and i.heredocs]
    assert [name for name in scripts if failure.made_by(name, MANIFEST) is None] == ["VERIFY"]
