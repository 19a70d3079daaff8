"""Every trap through the recipe's own steps in a real container; and what must pass, from this machine's own index."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trapping
from trapping import FACTS, HOME, INSIDE, MANIFEST, ROOT
from traps import EXTRAS, INDEXED, TRAPS, Trap

from builder import buildkit, lists, standin
from builder.engine import Engine
from builder.trace import Event

PLACE = "/traps"
BENCH = trapping.Bench(
    python=FACTS.python.executable,
    site=FACTS.python.site_packages,
    home=HOME,
    folders={"/opt/venv": f"{PLACE}/kept/venv", HOME: f"{PLACE}/kept/image"},
    index=f"file://{PLACE}/index",
    extra=f"file://{PLACE}/extra/simple",
    python_name=Path(FACTS.python.site_packages).parent.name,
    with_uv=True,
)
DOCKERFILE = """FROM {base}
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
COPY traps {place}
RUN <<'TRAPS'
mkdir -p {home} {place}/kept
cp -r {place}/inside {home}/bin
{sealing}
cp -a /opt/venv {place}/kept/venv
cp -a {home} {place}/kept/image
python3 {place}/in_turn.py {place}/cases.json {place}/outcomes.json
TRAPS
"""
CLEAN = """FROM {base}
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
COPY traps {home}
RUN <<'CLEAN'
{sealing}
for name in PyJWT; do {python} {home}/bin/judge.py remove $name; done
{python} - <<'PLAN'
import json, pathlib, sys, tempfile
sys.path.insert(0, "{home}/bin")
import judge
found = {{}}
for step in {steps}:
    with tempfile.TemporaryDirectory() as scratch:
        asked = judge.Judge(pathlib.Path("{home}"), step, pathlib.Path(scratch))
        overrides, rest = asked.lines()
        plan = asked.plan(overrides, "--no-deps")[0] + asked.plan(rest)[0]
        found[step] = [item.name for item in plan]
pathlib.Path("{home}/found.json").write_text(json.dumps(found))
PLAN
CLEAN
"""


def quiet(_: Event) -> None:
    """Watch nothing."""


def read(engine: Engine, image: str, path: str) -> Any:
    with engine.container(image, ["cat", path]) as container:
        assert container.wait() == 0
        return json.loads(container.output())


def built(engine: Engine, dockerfile: str, context: Path, *, network: buildkit.Network) -> str:
    done = buildkit.build(engine, dockerfile, arguments={}, watch=quiet, context=context, network=network)
    return done.image_id


@pytest.fixture(scope="session")
def outcomes(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What came of every trap, one after the other in one container."""
    base = standin.make(engine, MANIFEST, FACTS, standin.Ingredients(cache=ROOT / ".cache"), quiet)
    context = tmp_path_factory.mktemp("context")
    traps = context / "traps"
    shutil.copytree(INSIDE, traps / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(trapping.__file__).with_name("in_turn.py"), traps)
    trapping.write_index(traps / "index", INDEXED, BENCH.index, BENCH.python_name)
    trapping.write_index(traps / "extra", EXTRAS, BENCH.extra, BENCH.python_name)
    cases = {trap.title: BENCH.case(trap, "ours") for trap in TRAPS}
    given = {"folders": BENCH.folders, "site": BENCH.site, "cases": cases}
    (traps / "cases.json").write_text(json.dumps(given), encoding="utf-8")
    dockerfile = DOCKERFILE.format(base=base.reference, place=PLACE, home=HOME, sealing=BENCH.sealing([]))
    image = built(engine, dockerfile, context, network="none")
    found = read(engine, image, f"{PLACE}/outcomes.json")
    engine.remove_image(image)
    assert isinstance(found, dict)
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.title.replace(" ", "-"))
def test_a_trap_is_caught_in_a_container_too(outcomes: Mapping[str, Any], trap: Trap) -> None:
    trapping.assert_caught(trap, outcomes[trap.title])


SEALED = """FROM {base}
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
COPY inside {home}/bin
RUN <<'SEALED'
{sealing}
SEALED
"""


def test_the_seal_survives_saving_and_loading(engine: Engine, tmp_path: Path) -> None:
    """An archive keeps whole seconds only."""
    base = standin.make(engine, MANIFEST, FACTS, standin.Ingredients(cache=ROOT / ".cache"), quiet)
    shutil.copytree(INSIDE, tmp_path / "context" / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    dockerfile = SEALED.format(base=base.reference, home=HOME, sealing=BENCH.sealing([]))
    image = built(engine, dockerfile, tmp_path / "context", network="none")
    reference = f"vime-images-test/sealed:{engine.owner}"
    engine.tag(image, reference)
    archive = str(tmp_path / "image.tar")
    environment = {"DOCKER_HOST": engine.address, "PATH": os.environ["PATH"]}
    try:
        subprocess.run(["docker", "save", "--output", archive, reference], check=True, env=environment)
        engine.remove_image(reference)
        assert engine.image_id(reference) is None
        subprocess.run(["docker", "load", "--quiet", "--input", archive], check=True, env=environment)
        with engine.container(reference, [BENCH.python, f"{HOME}/bin/seal.py", "check", "LOADED"]) as container:
            assert (container.wait(), container.output()) == (0, "seal: LOADED: 11 distributions are as sealed\n")
    finally:
        engine.remove_image(reference)


@pytest.mark.timeout(1800)
def test_nothing_of_the_real_requirement_lists_is_refused_by_mistake(engine: Engine, tmp_path: Path) -> None:
    """Resolved from this machine's own index, and judged; the installation is the rehearsal's affair."""
    base = standin.make(engine, MANIFEST, FACTS, standin.Ingredients(cache=ROOT / ".cache", index="real"), quiet)
    traps = tmp_path / "traps"
    shutil.copytree(INSIDE, traps / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    steps: list[str] = []
    for source in MANIFEST.sources.values():
        if source.requirements and source.requirements.file:
            listed = standin.STANDINS / "sources" / Path(source.checkout).name / source.requirements.file
            shutil.copytree(listed.parent, traps / "requirements" / source.name)
            rules = lists.requirement_set(source) | {"file": f"requirements/{source.name}/{listed.name}"}
            steps.append(source.step("REQUIREMENTS"))
            (traps / "sets").mkdir(exist_ok=True)
            (traps / "sets" / f"{steps[-1]}.json").write_text(json.dumps(rules), encoding="utf-8")
    (traps / "policy.json").write_text(json.dumps(lists.policy(MANIFEST) | {"steps": steps}), encoding="utf-8")
    python = FACTS.python.executable
    dockerfile = CLEAN.format(base=base.reference, home=HOME, sealing=BENCH.sealing([]), python=python, steps=steps)
    image = built(engine, dockerfile, tmp_path, network="host")
    found = read(engine, image, f"{HOME}/found.json")
    engine.remove_image(image)
    assert len(found["REQUIREMENTS_VLLM"]) > 100
    assert len(found["REQUIREMENTS_VIME"]) > 50
    assert {"torch", "torchvision", "triton", "vllm"} & {name for names in found.values() for name in names} == set()
