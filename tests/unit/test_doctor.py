"""What can be said of a machine without its engine, and the arithmetic of what an engine keeps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from manifests import REAL, ROOT

from builder import doctor
from builder.errors import MachineError, UsageError

GB = 10**9
POLICY = [{"keepStorage": "2GB", "filter": ["type=source.local"]}, {"keepStorage": "80GB", "all": True}]


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(ROOT), "DOCKER_HOST": "unix:///nowhere.sock"} | environment
    done = subprocess.run(
        [sys.executable, "-m", "builder", *words], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize(
    ("collector", "disk_gb", "limit", "by"),
    [
        ({}, 250, 3.45, "the engine's own rule"),
        ({}, 20, 0.512, "the engine's own rule"),
        ({"enabled": True, "defaultKeepStorage": "100GB"}, 250, 13.8, "builder.gc.defaultKeepStorage"),
        ({"enabled": True, "defaultReservedSpace": "100GB"}, 250, 13.8, "builder.gc.defaultKeepStorage"),
        ({"enabled": True, "policy": POLICY}, 250, 80, "builder.gc.policy"),
        ({"policy": [{"reservedSpace": "1.5gb", "filter": ["type=exec.cachemount"]}, *POLICY]}, 1, 1.5, "builder.gc.policy"),
        ({"policy": POLICY[:1]}, 250, None, "builder.gc.policy"),
        ({"enabled": False, "policy": POLICY}, 250, None, "builder.gc is off"),
    ],
)  # fmt: skip
def test_what_an_engine_keeps_of_cache_mounts(
    collector: dict[str, Any], disk_gb: int, limit: float | None, by: str
) -> None:
    found, rule = doctor.mount_limit({"builder": {"gc": collector}}, disk_gb * GB)
    assert rule == by
    assert found is None if limit is None else found == pytest.approx(limit * GB)


def test_a_job_takes_what_the_recipe_counts() -> None:
    text = (ROOT / "templates/sources/wheel.j2").read_text()
    found = re.search(r"\$2 / (\d+)", text)
    assert found
    assert int(found[1]) * 1024 == doctor.JOB_BYTES


def test_without_an_engine_what_asks_it_could_not_run() -> None:
    done = command("doctor", REAL.stem, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["counts"]["failed"] == 0
    untried = {check["name"]: check["detail"] for check in report["checks"] if check["outcome"] == "could not run"}
    assert {
        "a container engine answers, and is new enough",
        "the engine's disk has room for the base",
        "memory is enough to compile",
        "rocm/primus:v26.4 has its digest in the registry",
        "the engine leaves the compiler's cache alone",
    } <= set(untried)
    assert untried["memory is enough to compile"].startswith("no engine to ask: no container engine at")
    assert command("doctor", REAL.stem, "--strict").returncode == MachineError.exit_code


def test_an_image_that_is_not_there_is_refused() -> None:
    assert command("doctor", "rocm7").returncode == UsageError.exit_code


def test_logins_that_cannot_be_read_are_a_problem_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"registry.example": {"auth": "no base64!"}}}))
    done = command("doctor", REAL.stem, DOCKER_CONFIG=str(tmp_path))
    assert done.returncode == MachineError.exit_code
    assert f"the logins in {tmp_path}/config.json cannot be read" in done.stdout
    assert "hint: mend it, or move it away" in done.stdout


def test_a_credential_program_that_is_not_there_is_named_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "gone"}))
    done = command("doctor", REAL.stem, DOCKER_CONFIG=str(tmp_path))
    assert done.returncode == MachineError.exit_code
    assert "docker-credential-gone" in done.stdout
    assert "install it, or remove 'credsStore'" in done.stdout
