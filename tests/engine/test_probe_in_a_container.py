"""The probe in real containers of a rehearsed image, on a machine without an AMD GPU or with one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import FACTS

from builder import devices, probing
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
    assert all("no /dev/kfd" in check.detail or "no mask is set" in check.detail for check in probed.checks)
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
