"""The command line on a real engine: stopped, run twice at once, run anew, with other pins."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builder import build, build_commands, errors, facts, manifest
from builder.build import Order
from builder.engine import OWNER, Engine
from builder.report import Report
from builder.trace import Event

ROOT = Path(__file__).parents[2]
IMAGE = "rocm7.14"
MANIFEST = manifest.load(ROOT / "images" / f"{IMAGE}.yaml")
FACTS = facts.of(MANIFEST, ROOT)
TARGET = MANIFEST.gpu_targets[-1]  # not the one of the other tests, whose tag would move under them
TAG = f"{MANIFEST.tag([TARGET])}-rehearsal"


def quiet(_: Event) -> None:
    """Watch nothing."""


@pytest.fixture(scope="module")
def project(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A copy of this project, and a way to start a rehearsal in it."""
    root = tmp_path_factory.mktemp("project")
    for folder in ("builder", "images", "templates", "standins"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (ROOT / ".cache").mkdir(exist_ok=True)
    (root / ".cache").symlink_to(ROOT / ".cache")

    def rehearse(*options: str) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": str(root)}
        if engine.address.startswith("unix://"):
            environment["DOCKER_HOST"] = engine.address
        command = [sys.executable, "-m", "builder", "rehearse", IMAGE, "--gpu-target", TARGET, "--plain", *options]
        # Python leaves SIGINT ignored where its parent did, as a shell does for what it starts with `&`.
        program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from builder.cli import run; run()"
        return subprocess.Popen(
            [sys.executable, "-c", program, *command[3:]],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    yield rehearse
    with contextlib.suppress(Exception):
        engine.remove_image(TAG)


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended without {words!r}")


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    assert process.stdout
    assert process.stderr
    with process:
        # Not `communicate`: lines that were read ahead of `wait_for` would be lost.
        told, out = process.stderr.read(), process.stdout.read()
    return process.returncode, out, told


def steps(text: str) -> dict[str, bool]:
    """By step, whether it came from the cache."""
    lines = [line.partition("] ")[2].rpartition(": ") for line in text.splitlines() if line.startswith("[")]
    return {name: state == "cached" for name, _, state in lines if state == "cached" or state.startswith("done")}


def processes_with(words: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if words in line:
                found.append(line)
    return found


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)], ids=str
)
def test_a_stopped_build_leaves_nothing_and_the_next_one_uses_what_was_built(
    engine: Engine, project: Callable[..., subprocess.Popen[str]], how: signal.Signals, status: int
) -> None:
    code, _, told = finished(project())
    assert code == 0, told
    before = engine.image_id(TAG)
    assert before
    process = project("--refresh", "INSTALL_VIME")
    wait_for(process, "INSTALL_VIME: started")
    if how is signal.SIGKILL:
        time.sleep(0.3)  # nobody can wait for the step's process then, and a cancel before it is there is lost
    process.send_signal(how)
    code, _, told = finished(process)
    assert code == status
    assert how is signal.SIGKILL or told.splitlines()[-1] == "stopped"
    deadline = time.monotonic() + 1
    while processes_with(" --editable /opt/vime") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_with(" --editable /opt/vime")
    assert not engine.api.containers(all=True, filters={"label": f"{OWNER}=vime-images"})
    assert engine.image_id(TAG) == before
    code, out, told = finished(project())
    assert code == 0, told
    assert steps(told)["BUILD_VLLM"]
    assert not steps(told)["INSTALL_VIME"], "the step was asked to run anew, and has not been"
    assert out.splitlines()[-1] == f"{TAG}  {engine.image_id(TAG)}"


def test_a_step_that_ran_anew_is_the_one_that_later_builds_find(
    engine: Engine, project: Callable[..., subprocess.Popen[str]]
) -> None:
    assert finished(project())[0] == 0
    first = engine.image_id(TAG)
    code, _, told = finished(project("--refresh", "INSTALL_MEGATRON"))
    assert code == 0, told
    cached = steps(told)
    assert cached["BUILD_VLLM"]
    assert cached["FETCH_MEGATRON"]
    assert not cached["INSTALL_MEGATRON"]
    assert not cached["VERIFY"]
    second = engine.image_id(TAG)
    assert second != first
    code, _, told = finished(project())
    assert all(steps(told).values())
    assert "INSTALL_MEGATRON and what follows: since the last --refresh" in told
    assert engine.image_id(TAG) == second


def test_the_same_image_is_not_built_twice_at_once(project: Callable[..., subprocess.Popen[str]]) -> None:
    first = project("--refresh", "INSTALL_VIME")
    wait_for(first, "started")
    code, _, told = finished(project())
    assert code == errors.BusyError.exit_code
    assert f"error: {TAG} is being worked on by process {first.pid} since " in told
    code, _, told = finished(first)
    assert code == 0, told
    assert finished(project())[0] == 0


def test_a_wrong_step_is_refused_with_the_near_one(project: Callable[..., subprocess.Popen[str]]) -> None:
    code, _, told = finished(project("--refresh", "INSTAL_VIME"))
    assert code == errors.UsageError.exit_code
    assert "did you mean 'INSTALL_VIME'?" in told


def test_a_failed_build_leaves_a_report_that_is_open_at_its_step(
    engine: Engine, clean: tuple[Order, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_commands, "ROOT", tmp_path)
    arguments = {**clean[0].arguments, "VIME_COMMIT": "f" * 40}
    with pytest.raises(errors.BuildFailedError):
        build_commands.reported(engine, replace(clean[0], arguments=arguments), quiet, None)
    (path,) = tmp_path.glob("build/*/report.json")
    found = json.loads(path.read_text())
    assert (found["image_id"], found["tag"], found["counts"]["failed"]) == ("", None, 1)
    assert [step["name"] for step in found["steps"] if step["failed"]] == ["FETCH_VIME"]
    page = path.with_suffix(".html").read_text()
    assert ">Build failed<" in page
    opened = page[page.index('<details class="step failed" open>') :].partition("</details>")[0]
    assert ">FETCH_VIME<" in opened
    assert "f" * 40 in opened, "the step's log"
    assert found["checks"][0]["hint"].replace("'", "&#39;").splitlines()[0] in page


# Other pins, without a change of the manifest


def test_an_image_with_another_pin_says_so_and_is_verified(engine: Engine, clean: tuple[Order, Report]) -> None:
    ordered, _ = clean
    commit = ordered.arguments["VIME_COMMIT"]
    rest = {name: value for name, value in ordered.arguments.items() if name != "VIME_COMMIT"}
    other = manifest.overridden(MANIFEST, {"vime.commit": commit})
    report = build.make(
        engine,
        replace(ordered, manifest=other, arguments=rest, overrides={"vime.commit": commit}, tag=f"{ordered.tag}-dev"),
        quiet,
    )
    assert (report.pins, report.arguments["vime.commit"], report.passed) == ("overridden", commit, True)
    anew = {step.name for step in report.steps if not step.cached}
    assert anew <= {"MANIFEST_JSON", f"WORKDIR {MANIFEST.workdir}"}, (
        "the same commit, given in another way, is the same step"
    )
    engine.remove_image(f"{ordered.tag}-dev")
    assert json.loads(report.json())["arguments"]["vime.commit"] == commit


def test_a_pin_that_only_the_override_changes_is_labelled_too(tiny: str) -> None:
    """Without the label, an image from another repository would call its pins the manifest's."""
    other = manifest.overridden(MANIFEST, {"vime.repository": "https://example.org/fork/vime"})
    assert other.sources["vime"].repository == "https://example.org/fork/vime"
    ordered = Order(
        manifest=other,
        facts=FACTS,
        gpu_targets=("gfx942",),
        tag="x:y",
        arguments={"BASE_IMAGE": tiny},
        network="none",
        overrides={"vime.repository": "https://example.org/fork/vime"},
    )
    assert "--repository https://example.org/fork/vime" in ordered.dockerfile
    assert ordered.labels == {"vime-image.pins": "overridden"}
