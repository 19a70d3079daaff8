"""The probe in real containers of a rehearsed image, on a machine without an AMD GPU or with one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from conftest import FACTS, ROOT

from builder import devices, probing, render, verdict
from builder.devices import Devices
from builder.errors import VerificationError

if TYPE_CHECKING:
    from builder.build import Order
    from builder.engine import Engine
    from builder.observed import Probed
    from builder.report import Report

NO_GPU = Devices((), ())


@pytest.fixture(scope="session")
def probed(engine: Engine, clean: tuple[Order, Report]) -> Probed:
    return probing.probe(engine, clean[1].image_id, FACTS.python.executable, NO_GPU)


def test_without_devices_nothing_is_said_to_have_passed(probed: Probed) -> None:
    assert {check.outcome for check in probed.checks} == {"could not run"}
    assert all("no /dev/kfd" in check.detail for check in probed.checks)
    assert probed.sentence.startswith("whether colocate weight sync works here is not known: no /dev/kfd")


def test_the_targets_are_those_of_the_image(probed: Probed) -> None:
    assert probed.targets == ("gfx942",)


def test_the_second_container_has_an_ipc_namespace_of_its_own(probed: Probed) -> None:
    spaces = {setting: seen["namespaces"]["ipc"] for setting, seen in probed.seen.items()}
    assert set(spaces) == {"host", "private"}
    assert spaces["host"] != spaces["private"]


def test_the_image_s_own_variables_reach_the_probe(probed: Probed) -> None:
    assert probed.seen["host"]["legacy"] == "1"


def test_a_group_of_the_devices_is_given_by_its_number(engine: Engine, clean: tuple[Order, Report]) -> None:
    found = probing.probe(engine, clean[1].image_id, FACTS.python.executable, Devices((), (4242,)))
    assert 4242 in found.seen["host"]["groups"]


def test_simulated_gpus_are_probed_under_a_container_s_limits(engine: Engine, clean: tuple[Order, Report]) -> None:
    """The host that tests/unit has, with the image's Python, a file system that is read-only, and no privileges."""
    runtime = ROOT / "tests/gpu/runtime"
    rules = yaml.safe_load((ROOT / "tests/gpu/rules.yaml").read_text(encoding="utf-8"))
    host = {"gpus": 4, "target": "gfx942", "rules": {name: rule["value"] for name, rule in rules.items()}}
    files = {f"/simulated/{path.relative_to(runtime)}": path.read_bytes() for path in runtime.rglob("*.py")}
    files |= {f"/vime-probe/{name}": (render.PROGRAMS / name).read_bytes() for name in probing.PROGRAMS}
    files["/given/host.json"] = json.dumps(host).encode()
    prepare = "mkdir -p /tmp/dev/dri && cp /given/host.json /tmp && touch /tmp/dev/kfd /tmp/dev/dri/renderD{128..131}"
    start = f"{prepare} && exec {FACTS.python.executable} /vime-probe/probe.py --devices /tmp/dev"
    environment = {"PYTHONPATH": "/simulated", "SIMULATED_HOST": "/tmp/host.json", "HOME": "/tmp"}
    image = clean[1].image_id
    with engine.container(image, ["bash", "-c", start], files=files, environment=environment) as container:
        assert container.wait() == 0
        seen = json.loads(container.output().splitlines()[-1])
    found = verdict.judge({"host": seen})
    assert {check.outcome for check in found.checks} == {"passed"}
    assert found.sentence.endswith("with its own GPUs alone it fails on GPU 1, 2, 3")


@pytest.mark.skipif(devices.KFD.exists(), reason="this machine has GPUs")
def test_the_command_ends_with_21_where_nothing_could_be_tried_and_says_so_in_one_json_object(
    clean: tuple[Order, Report],
) -> None:
    command = [sys.executable, "-m", "builder", "probe", str(clean[1].tag), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 21
    written = json.loads(done.stdout)
    assert written["table"] == []
    assert {check["outcome"] for check in written["checks"]} == {"could not run"}
    assert f"error: 7 of 7 checks could not run: {written['sentence']}" in done.stderr


def test_an_empty_name_is_no_image(engine: Engine) -> None:
    assert engine.image_id("") is None


def test_an_image_without_that_python_is_an_error_with_its_words(engine: Engine, tiny: str) -> None:
    with pytest.raises(VerificationError, match="the probe did not run: exit code 127") as caught:
        probing.probe(engine, tiny, "python3", NO_GPU)
    assert "python3" in str(caught.value.problems[0].hint)


def test_the_nodes_of_a_host_come_with_the_numbers_of_their_groups(tmp_path: Path) -> None:
    kfd, dri = tmp_path / "kfd", tmp_path / "dri"
    assert devices.of_host(kfd, dri) == NO_GPU
    dri.mkdir()
    for node in (kfd, dri / "renderD128", dri / "card0"):
        node.touch()
    group = kfd.stat().st_gid
    assert devices.of_host(kfd, dri) == Devices((str(kfd), str(dri)), (group,) if group else ())
