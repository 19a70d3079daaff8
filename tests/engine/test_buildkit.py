"""Builds on a real engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest
from sleepers import sleepers, within

from builder import buildkit
from builder.engine import OWNER, Engine
from builder.errors import BuildFailedError

if TYPE_CHECKING:
    from builder.trace import Event


def quiet(_: Event) -> None:
    """Watch nothing."""


def docker(
    engine: Engine, *arguments: str, given: str, buildkit_is_on: bool = True
) -> subprocess.CompletedProcess[str]:
    """What people type, against the same engine."""
    environment = os.environ | {"DOCKER_BUILDKIT": "1" if buildkit_is_on else "0"}
    if engine.address.startswith("unix://"):
        environment["DOCKER_HOST"] = engine.address
    return subprocess.run(
        ["docker", *arguments], input=given, env=environment, capture_output=True, text=True, check=False
    )


def test_the_body_of_a_heredoc_really_runs(engine: Engine, tiny: str) -> None:
    built = buildkit.build(
        engine, f"FROM {tiny}\nRUN <<'PROOF'\necho heredoc > /proof\nPROOF\n", arguments={}, watch=quiet
    )
    with engine.container(built.image_id, ["cat", "/proof"]) as container:
        assert (container.wait(), container.output()) == (0, "heredoc\n")


def test_a_file_in_place_is_exact_for_every_byte_but_its_last_newline(engine: Engine, tiny: str) -> None:
    text = (
        "".join(chr(code) for code in range(32, 0x2FF) if chr(code).isprintable()) + "\\ \\n $HOME `x` \"'\t\n\n  end"
    )
    built = buildkit.build(
        engine, f"FROM {tiny}\nCOPY <<'TEXT' /text\n{text}\nTEXT\n", arguments={}, watch=quiet, network="none"
    )
    with engine.container(built.image_id, ["cat", "/text"]) as container:
        container.wait()
        assert container.output() == text + "\n"


def test_a_second_build_of_the_same_file_runs_nothing(engine: Engine, tiny: str) -> None:
    text = f"FROM {tiny}\nRUN <<'ONE'\ntouch /one\nONE\nRUN <<'TWO'\ntouch /two\nTWO\n"
    first = buildkit.build(engine, text, arguments={}, watch=quiet)
    second = buildkit.build(engine, text, arguments={}, watch=quiet)
    assert first.image_id == second.image_id
    assert [(step.name, step.cached) for step in second.steps] == [("ONE", True), ("TWO", True)]


def test_a_failing_step_is_named_with_its_exit_code_and_its_last_lines(engine: Engine, tiny: str) -> None:
    text = f"FROM {tiny}\nRUN <<'LOUD'\nfor i in $(seq 100); do echo line $i; done\nexit 7\nLOUD\n"
    with pytest.raises(BuildFailedError) as caught:
        buildkit.build(engine, text, arguments={}, watch=quiet)
    assert caught.value.step == "LOUD"
    lines = str(caught.value).splitlines()
    assert lines[0] == "error: step LOUD failed: exit code 7"
    assert lines[1:] == [f"    line {number}" for number in range(61, 101)]


def test_a_build_argument_changes_a_label_by_cutting_the_default_off(engine: Engine, tiny: str) -> None:
    text = (
        f"FROM {tiny}\nARG PIN=abc\nARG OVERRIDDEN=${{PIN#abc}}\nARG PINS=${{OVERRIDDEN:+overridden}}\n"
        'LABEL pins="${PINS:-as manifest}"\n'
    )
    found = [
        engine.labels(buildkit.build(engine, text, arguments=arguments, watch=quiet).image_id)["pins"]
        for arguments in ({}, {"PIN": "abc"}, {"PIN": "abd"})
    ]
    assert found == ["as manifest", "as manifest", "overridden"]


def test_docker_build_of_the_same_file_gives_the_same_image_from_the_shared_cache(engine: Engine, tiny: str) -> None:
    text = f'FROM {tiny}\nARG X=1\nRUN <<\'STEP\'\necho $X > /x\nSTEP\nENTRYPOINT ["cat", "/x"]\n'
    built = buildkit.build(engine, text, arguments={"X": "2"}, watch=quiet)
    done = docker(engine, "build", "--quiet", "--provenance=false", "--build-arg", "X=2", "-", given=text)
    assert done.stdout.strip() == built.image_id, done.stderr


def test_the_classic_builder_stops_at_a_mount(engine: Engine, tiny: str) -> None:
    text = f"FROM {tiny}\nRUN --mount=type=tmpfs,target=/tmp true\nRUN <<'STEP'\nexit 1\nSTEP\n"
    done = docker(engine, "build", "-", given=text, buildkit_is_on=False)
    assert done.returncode != 0
    assert "BuildKit" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_a_build_whose_client_is_stopped_leaves_its_cache_and_nothing_else(
    engine: Engine, tiny: str, how: signal.Signals
) -> None:
    marker = f"3{time.time_ns() % 10**8}"  # a sleep that only this test starts
    text = f"FROM {tiny}\nRUN <<'FIRST'\n: {marker}\nFIRST\nRUN <<'SLEEP'\nsleep {marker}\nSLEEP\n"
    program = textwrap.dedent(f"""
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell starts with `&`
        from builder import buildkit
        from builder.engine import Engine
        buildkit.build(Engine("test-stopped"), {text!r}, arguments={{}}, watch=print)
    """)
    environment = os.environ | ({"DOCKER_HOST": engine.address} if engine.address.startswith("unix://") else {})
    before = images(engine)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        try:
            assert within(30, lambda: sleepers(marker))
            process.send_signal(how)
            assert process.wait(timeout=30) != 0
        finally:
            process.kill()  # without it, `with` waits for a client that nobody has stopped
    assert within(1, lambda: not sleepers(marker))
    assert images(engine) == before
    assert not engine.api.containers(all=True, filters={"label": f"{OWNER}=test-stopped"})
    again = buildkit.build(engine, text.replace(f"sleep {marker}", "true"), arguments={}, watch=quiet)
    assert [(step.name, step.cached) for step in again.steps] == [("FIRST", True), ("SLEEP", False)]


def images(engine: Engine) -> set[str]:
    """The images of an engine, with their tags."""
    return {f"{image['Id']} {sorted(image['RepoTags'] or [])}" for image in engine.api.images(all=True)}
