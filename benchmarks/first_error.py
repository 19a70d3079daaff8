"""Time to the first true error, for ten faults: the stage that catches each, beside the build that would reach it.

    python -m benchmarks.first_error

The faults are those of tests/faults, planted in a copy of the project or in its sources (stand-ins). The stage is the
command as people type it, a whole process. That a build reaches the fault, and in which step, is shown by one on the
rehearsal's base; the time until then is the sum of the steps before that one, as one clean build took them whose
compile of vLLM takes 60 s. The step that fails is not counted. The copy is as one that was used before: what its user
has once, bytecode and compiled templates, is there.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("faults", "unit")]

import origins  # noqa: E402 (the path comes first)
from copies import copied  # noqa: E402
from faults import CHECK, PREFLIGHT, Fault  # noqa: E402
from origins import FACTS, MANIFEST  # noqa: E402

from benchmarks import pinned  # noqa: E402
from benchmarks.telling import Target, tell  # noqa: E402
from benchmarks.timing import as_users_have_it  # noqa: E402
from builder import buildkit, standin  # noqa: E402
from builder.engine import Engine  # noqa: E402
from builder.errors import BuildFailedError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPILE_S, ALLOWED, RUNS, BUILDS_AT_ONCE = 60, 10, 3, 3
FILE = MANIFEST.dockerfile
NOWHERE = "1" * 40


@dataclass(frozen=True, kw_only=True)
class Reached:
    """Where a build meets a fault.

    Attributes:
        written: how the fault stands in the Dockerfile, where no manifest with it can be rendered.
    """

    title: str
    step: str
    stage: Literal["check", "preflight"] = "preflight"
    written: tuple[str, str] | None = None
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def fault(self) -> Fault:
        (found,) = (fault for fault in (*CHECK, *PREFLIGHT) if fault.title == self.title)
        return found


# All of them stand behind the compile: what a build meets before it costs seconds, with this project or without.
TEN = (
    Reached(
        title="a variable that is forbidden is declared",
        stage="check",
        step="VERIFY",
        written=("\nENV GPU_ARCHS", '\nENV ROCR_VISIBLE_DEVICES="0"\nENV GPU_ARCHS'),
    ),
    Reached(
        title="a CUDA library among the requirements to add",
        stage="check",
        step="REQUIREMENTS_VLLM",
        written=('"add": ["joblib', '"add": ["nvidia-cublas-cu13>=1", "joblib'),
    ),
    Reached(
        title="a patch from a source that comes later",
        stage="check",
        step="FETCH_VIME",
        written=("    --patch /opt/vime-image", "    --patch /opt/Megatron-LM/a.patch --patch /opt/vime-image"),
    ),
    Reached(
        title="a commit that is gone",
        step="BUILD_TORCH_MEMORY_SAVER",
        arguments=(("TORCH_MEMORY_SAVER_COMMIT", NOWHERE),),
    ),
    Reached(title="a module that is misspelt", step="VERIFY"),
    Reached(title="a distribution of another name than its project's", step="INSTALL_MEGATRON"),
    Reached(title="a variable that vLLM does not read", step="VERIFY"),
    Reached(title="a patch that conflicts", step="FETCH_MEGATRON"),
    Reached(title="a name that vLLM has moved", step="VERIFY"),
    Reached(title="`torch!=` the base's version", step="REQUIREMENTS_VIME"),
)


# Our stage


def run(root: Path, environment: Mapping[str, str], *words: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """A command as people type it, and the seconds of its whole process."""
    command = [sys.executable, "-m", "builder", *words, MANIFEST.name]
    started = time.monotonic()
    own = as_users_have_it(environment)
    done = subprocess.run(command, cwd=root, env=own, capture_output=True, text=True, check=False)
    return time.monotonic() - started, done


def stage_seconds(reached: Reached, packages: Path) -> float:
    """What the stage takes until it has named the fault; the median of some runs, each in a new copy."""
    return median(_once(reached, packages) for _ in range(RUNS))


def _once(reached: Reached, packages: Path) -> float:
    fault = reached.fault
    with tempfile.TemporaryDirectory() as scratch:
        world, root = Path(scratch), copied(Path(scratch)).root
        environment = os.environ | {"PYTHONPATH": str(root), "DOCKER_HOST": Engine("benchmark").address}
        used(root, environment)
        if fault.project:
            fault.project(root)
        if reached.stage == "preflight":
            environment |= pinned.reached(world, packages, pinned.changed(world, fault.trees))
            _, done = run(root, environment, "render")
            if done.returncode:
                raise SystemExit(f"{reached.title}: an earlier stage sees it: {done.stderr}")
        seconds, done = run(root, environment, reached.stage)
    told = done.stdout + done.stderr
    if not done.returncode or not all(fact in told for fact in fault.says):
        raise SystemExit(f"{reached.title}: {reached.stage} does not name it: {told}")
    return seconds


def used(root: Path, environment: Mapping[str, str]) -> None:
    """Leave the copy as a checkout that was used before: with bytecode, and with its templates compiled."""
    compileall.compile_dir(root / "builder", quiet=2)
    _, done = run(root, environment, "render")
    if done.returncode:
        raise SystemExit(done.stderr)


# The build


def slowly(standins: Path) -> None:
    """A vLLM whose compile takes its time; a word of this moment, so that nothing of it is cached."""
    path = standins / "sources/vllm/setup.py"
    begin = f"# {time.time()}\nimport time\nBEGAN = time.monotonic()\n"
    end = f"time.sleep(max(0, {COMPILE_S} - (time.monotonic() - BEGAN)))\n"
    path.write_text(f"{begin}{path.read_text('utf-8')}{end}", "utf-8")


def base(engine: Engine, change: object, scratch: Path) -> standin.StandIn:
    ingredients = standin.Ingredients(cache=ROOT / ".cache", standins=pinned.changed(scratch, change))
    return standin.make(engine, MANIFEST, FACTS, ingredients, lambda _: None)


def clean_seconds(engine: Engine) -> dict[str, float]:
    """What each step takes, where nothing is broken and nothing cached."""
    with tempfile.TemporaryDirectory() as scratch:
        stand_in = base(engine, slowly, Path(scratch))
    try:
        text, arguments = (ROOT / FILE).read_text("utf-8"), {"BASE_IMAGE": stand_in.reference, **stand_in.arguments}
        built = buildkit.build(engine, text, arguments=arguments, watch=lambda _: None, network="none")
    finally:
        engine.remove_image(stand_in.reference)
    if any(step.cached for step in built.steps):
        raise SystemExit("a step was cached: it took no time")
    return {step.name: step.seconds for step in built.steps}


def stopped_at(reached: Reached) -> str:
    """The step at which a build with the fault stops."""
    engine, fault = Engine("benchmark"), reached.fault
    with tempfile.TemporaryDirectory() as scratch:
        root = copied(Path(scratch)).root
        if reached.written:
            text = (root / FILE).read_text("utf-8")
            if reached.written[0] not in text:
                raise SystemExit(f"{reached.title}: {FILE} no longer has {reached.written[0]!r}")
            text = text.replace(*reached.written, 1)
        else:
            if fault.project:
                fault.project(root)
            run(root, os.environ | {"PYTHONPATH": str(root)}, "render")
            text = (root / FILE).read_text("utf-8")
        stand_in = base(engine, fault.trees, Path(scratch))
    arguments = {"BASE_IMAGE": stand_in.reference, **stand_in.arguments, **dict(reached.arguments)}
    try:
        buildkit.build(engine, text, arguments=arguments, watch=lambda _: None, network="none")
    except BuildFailedError as error:
        return error.step or ""
    finally:
        if fault.trees:
            engine.remove_image(stand_in.reference)
    raise SystemExit(f"{reached.title}: the build does not stop at it")


def before(step: str, seconds: Mapping[str, float]) -> float:
    """What a build takes until it begins with the step."""
    names = list(seconds)
    return sum(seconds[name] for name in names[: names.index(step)])


def main() -> None:
    engine = Engine("benchmark")
    seconds = clean_seconds(engine)
    sys.stderr.write(f"a clean build: {sum(seconds.values()):.0f} s, of them vLLM {seconds['BUILD_VLLM']:.0f} s\n")
    with tempfile.TemporaryDirectory() as scratch:
        packages = origins.packages(Path(scratch))
        stages = [stage_seconds(reached, packages) for reached in TEN]
    with tempfile.TemporaryDirectory() as scratch:
        base(engine, None, Path(scratch))
    with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:  # no time is measured
        steps = list(pool.map(stopped_at, TEN))
    for reached, step in zip(TEN, steps, strict=True):
        if step != reached.step:
            raise SystemExit(f"{reached.title}: the build stops at {step}, not at {reached.step}")
    report(seconds, stages)


def report(seconds: Mapping[str, float], stages: list[float]) -> None:
    rows, targets = [], []
    for reached, own in zip(TEN, stages, strict=True):
        build = before(reached.step, seconds)
        rows.append([reached.title, reached.stage, round(own, 2), reached.step, round(build, 1), round(build / own)])
        what = f"{reached.title}: the build against {reached.stage}"
        targets.append(Target(what=what, value=round(build / own, 1), allowed=ALLOWED, unit="x", at_least=True))
    tell(
        title="Time to the first true error",
        how=" ".join(__doc__.split("\n\n")[2].split()),
        columns=["fault", "stage", "until its message (s)", "a build stops at", "until then (s)", "ratio"],
        rows=rows,
        targets=targets,
        notes=[
            f"The clean build: {sum(seconds.values()):.0f} s, the compile of vLLM {seconds['BUILD_VLLM']:.0f} s.",
            "All ten stand behind the compile. What a build meets before it costs it seconds.",
            "What only a build shows is met by a rehearsal, whose compile takes seconds: not measured here.",
            "The repositories and the index are on this machine; over a network, preflight and build take longer.",
        ],
    )


if __name__ == "__main__":
    main()
