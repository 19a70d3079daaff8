"""The image on a base that ships vLLM: rehearsed on a real engine, whole, and with one thing broken at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from test_rehearsal import failure, quiet, replace, run

from builder import build, facts, manifest
from builder.build import Order
from builder.engine import Engine
from builder.report import Report

ROOT = Path(__file__).parents[2]
MANIFEST = manifest.load(ROOT / "images" / "rocm7.2.yaml")
FACTS = facts.of(MANIFEST, ROOT)
VLLM = f"vllm {FACTS.distributions['vllm']}"

Make = Callable[..., Order]


@pytest.fixture(scope="module")
def second(engine: Engine, second_order: Make) -> tuple[Order, Report]:
    """A rehearsal with nothing broken."""
    ordered = second_order()
    return ordered, build.make(engine, ordered, quiet)


def test_a_clean_rehearsal_passes_every_check_and_gets_its_tag(engine: Engine, second: tuple[Order, Report]) -> None:
    ordered, report = second
    assert [check.detail for check in report.checks if check.outcome != "passed"] == []
    assert (report.tag, engine.image_id(ordered.tag)) == (ordered.tag, report.image_id)


def test_the_entry_point_of_the_base_is_reset(engine: Engine, second: tuple[Order, Report]) -> None:
    base, image = (engine.config(name) for name in (second[0].arguments["BASE_IMAGE"], second[1].image_id))
    assert base["Entrypoint"] == list(FACTS.entrypoint or ()) == ["vllm", "serve"]
    assert (image["Entrypoint"], image.get("Cmd")) == (list(MANIFEST.entrypoint), None)


def test_vllm_is_the_base_s_own_after_all_steps_and_numpy_is_vime_s(
    engine: Engine, second: tuple[Order, Report]
) -> None:
    names = "vllm", "numpy", "torch", "apex"
    program = f"from importlib.metadata import version; print(*map(version, {names}))"
    found = run(engine, second[1].image_id, FACTS.python.executable, "-c", program).split()
    versions = FACTS.distributions
    assert found == [versions["vllm"], "1.26.4", versions["torch"], MANIFEST.prebuilt["apex"].version]
    lines = run(engine, second[1].image_id, "cat", "/opt/vime-image/constraints.txt").splitlines()
    assert f"vllm=={versions['vllm']}" in lines


def test_a_requirement_that_would_replace_the_vllm_of_the_base_is_refused(engine: Engine, second_order: Make) -> None:
    change = replace("sources/vime/requirements.txt", "accelerate", "accelerate\nvllm>0.29.0")
    error = failure(engine, second_order(change))
    assert error.step == "REQUIREMENTS_VIME"
    for part in ("vllm>0.29.0", f"the base has {VLLM}", "sources.vime.requirements"):
        assert part in str(error)


def test_a_build_that_writes_into_the_vllm_of_the_base_breaks_the_seal_at_its_own_step(
    engine: Engine, second_order: Make
) -> None:
    vandal = f"open('{FACTS.python.site_packages}/vllm/envs.py', 'a').write('# another build\\\\n')"
    change = replace("sources/TransformerEngine/setup.py", "import os\n", f"import os\n{vandal}\n")
    error = failure(engine, second_order(change))
    assert error.step == "BUILD_TRANSFORMER_ENGINE"
    assert f"{VLLM}: file changed" in str(error)


@pytest.mark.parametrize(
    ("end", "said"),
    [("#sha256=" + "1" * 64, "DO NOT MATCH THE HASHES"), ("", "Hashes are required")],
    ids=["another hash", "no hash, as while it is unknown"],
)
def test_a_wheel_without_its_hash_is_not_installed(engine: Engine, second_order: Make, end: str, said: str) -> None:
    address = second_order().arguments["APEX_WHEEL"].partition("#")[0]
    error = failure(engine, second_order(arguments={"APEX_WHEEL": address + end}))
    assert error.step == "INSTALL_APEX"
    assert said in str(error)
    assert error.problems[-1].where == MANIFEST.where("prebuilt", "apex")


def test_a_name_that_the_vllm_of_the_base_lacks_is_reported_with_its_new_place(
    engine: Engine, second_order: Make
) -> None:
    line = "from vllm.entrypoints.openai.cli_args import FrontendArgs"

    def change(standins: Path) -> None:
        path = standins / "sources/vime/vime/rollout/memory.py"
        path.write_text(f"{line}\n{path.read_text()}")

    error = failure(engine, second_order(change))
    assert error.step == "VERIFY"
    assert "vllm.entrypoints.openai.cli_args.FrontendArgs, imported at vime/rollout/memory.py:1" in str(error)
    assert "it is now in vllm.entrypoints.launchers.cli_args" in str(error)
