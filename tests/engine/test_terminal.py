"""A person's session in a container: debug, run, and what is left of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder import build, buildkit, debugging, facts, manifest, terminal
from builder.engine import CLIENT, OWNER, Engine
from builder.errors import EngineError, UsageError
from builder.terminal import Session
from builder.trace import Event

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.14.yaml")
FACTS = facts.of(MANIFEST, ROOT)
WIDE = 101
SHELL = """
import sys
from builder import terminal
from builder.engine import Engine
session = terminal.Session(image=sys.argv[2], command=tuple(sys.argv[3:]), environment={"HERE": "yes"}, host={"network_mode": "none"})
sys.exit(terminal.run(Engine(sys.argv[1]), session, {"/notes/a.sh": b"echo from the file\\n"}))
"""


def containers(engine: Engine) -> list[str]:
    return [c["Id"] for c in engine.api.containers(all=True, filters={"label": f"{OWNER}={engine.owner}"})]


def started(engine: Engine, image: str, *command: str, **streams: int) -> subprocess.Popen[bytes]:
    environment = os.environ | ({"DOCKER_HOST": engine.address} if engine.address.startswith("unix://") else {})
    words = [sys.executable, "-c", SHELL, engine.owner, image, *command]
    return subprocess.Popen(words, cwd=ROOT, env=environment, **streams)  # type: ignore[call-overload, no-any-return]


@contextlib.contextmanager
def on_terminal(engine: Engine, image: str, *command: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, WIDE, 0, 0))
    with started(engine, image, *command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def until(terminal_: int, wanted: str, seconds: float = 30) -> str:
    text, deadline = "", time.monotonic() + seconds
    while wanted not in text and time.monotonic() < deadline:
        if select.select([terminal_], [], [], 0.2)[0]:
            try:
                text += os.read(terminal_, 4096).decode("utf-8", "replace")
            except OSError:  # the other side is closed
                break
    assert wanted in text, text
    return text


def test_a_terminal_is_passed_on_both_ways_with_its_size(engine: Engine, tiny: str) -> None:
    with on_terminal(engine, tiny, "bash", "--norc") as (process, typed):
        until(typed, "# ")
        os.write(typed, b"echo $((6 * 7))$HERE; bash /notes/a.sh\n")
        assert "42yes" in until(typed, "from the file")
        os.write(typed, b"shopt -s checkwinsize; (:); echo wide=$((COLUMNS + 0)).\n")
        until(typed, f"wide={WIDE}.")
        os.write(typed, b"bash -c 'echo asleep$((1)); sleep 600'\n")
        until(typed, "asleep1")
        os.write(typed, b"\x03")  # Ctrl-C belongs to what runs inside
        until(typed, "# ")
        os.write(typed, b"exit 7\n")
        assert process.wait(timeout=30) == 7
    assert not containers(engine)


def test_a_pipe_is_passed_on_and_standard_error_stays_apart(engine: Engine, tiny: str) -> None:
    process = started(
        engine,
        tiny,
        "bash",
        "-c",
        "cat; echo bad >&2; exit 3",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = process.communicate(b"one\ntwo\n", timeout=60)
    assert (process.returncode, out, err) == (3, b"one\ntwo\n", b"bad\n")
    assert not containers(engine)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_stopped_session_leaves_no_container(engine: Engine, tiny: str, how: signal.Signals) -> None:
    program = textwrap.dedent(SHELL).replace(
        "import sys\n",
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n",
        1,
    )
    environment = os.environ | ({"DOCKER_HOST": engine.address} if engine.address.startswith("unix://") else {})
    with subprocess.Popen(
        [sys.executable, "-c", program, engine.owner, tiny, "bash", "-c", "echo up; sleep 600"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == b"up\n"
            assert len(containers(engine)) == 1
            process.send_signal(how)
            assert process.wait(timeout=30) != 0
        finally:
            process.kill()
    assert not containers(engine)


def test_a_container_names_the_process_that_looks_after_it(engine: Engine, tiny: str) -> None:
    with engine.container(tiny, ["sleep", "5"]) as container:
        labels = engine.api.inspect_container(container.id)["Config"]["Labels"]
    assert labels[CLIENT].split()[1] == str(os.getpid())


def test_a_command_that_is_not_there_is_an_error_not_a_traceback(engine: Engine, tiny: str) -> None:
    session = Session(image=tiny, command=("no-such-program",), environment={}, host={"network_mode": "none"})
    with pytest.raises(EngineError, match="no-such-program"):
        terminal.run(engine, session)


def test_a_finished_image_runs_with_a_working_copy_over_its_tree(engine: Engine, tiny: str, tmp_path: Path) -> None:
    """With every option of a training run; an engine that may not raise limits says so, and runs it all the same."""
    (tmp_path / "mine.txt").write_text("mine\n")
    text = f"FROM {tiny}\nLABEL vime-image.image={MANIFEST.name}\n"
    image = buildkit.build(engine, text, arguments={}, watch=quiet).image_id
    environment = os.environ | ({"DOCKER_HOST": engine.address} if engine.address.startswith("unix://") else {})
    inside = f"cat {MANIFEST.sources['vime'].checkout}/mine.txt; ulimit -l; exit 5"
    words = ["run", image, "--mount", f"vime={tmp_path}", "--", "bash", "-c", inside]
    done = subprocess.run(
        [sys.executable, "-m", "builder", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    engine.remove_image(image)
    assert done.returncode == 5, done.stderr
    mine, locked = done.stdout.splitlines()
    assert mine == "mine"
    assert locked == "unlimited" or "this engine may not raise limits: memlock, stack stay" in done.stderr
    owners = {"label": f"{OWNER}=vime-images"}
    assert not [c for c in engine.api.containers(all=True, filters=owners) if c["ImageID"] == image]


def order_on(base: str) -> build.Order:
    arguments = {"BASE_IMAGE": base}
    return build.Order(
        manifest=MANIFEST, facts=FACTS, gpu_targets=("gfx950",), tag="x:y", arguments=arguments, network="none"
    )


def quiet(_: Event) -> None:
    """Watch nothing."""


def test_a_step_s_scene_is_what_the_steps_before_it_made(
    engine: Engine, tiny: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    order = order_on(tiny)
    scene = debugging.before(
        engine,
        order,
        "SEAL_BASE",
        ["bash", "-c", f"ls /opt/vime-image/bin {debugging.FOLDER}; echo $BASE_IMAGE"],
        quiet,
    )
    try:
        assert terminal.run(engine, scene.session, scene.files) == 0
        told = capfdbinary.readouterr().out.decode().split()
        assert {"seal.py", "SEAL_BASE.sh", tiny} <= set(told)
        assert {"judge.py", "source.py"} & set(told) == set()
        assert "SEAL_BASE.sh" in scene.greeting
        assert engine.labels(scene.session.image)["vime-image.debug"] == "SEAL_BASE"
    finally:
        engine.remove_image(scene.session.image)


def test_the_scene_has_the_arguments_of_this_build(engine: Engine, tiny: str) -> None:
    order = order_on(tiny)
    with pytest.raises(UsageError):
        debugging.before(engine, order, "NO_STEP", [], quiet)
    assert debugging.arguments(order, "BUILD_VLLM") == {
        "BASE_IMAGE": tiny,
        "GPU_TARGETS": "gfx950",
        "VLLM_COMMIT": MANIFEST.sources["vllm"].commit,
    }
