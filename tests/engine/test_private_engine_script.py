"""`scripts/engine` itself, in a checkout of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import docker
import pytest
from private import refuse_where_none_can_start

SCRIPT = Path(__file__).parents[2] / "scripts" / "engine"


def test_the_private_engine_leaves_nothing_mounted_when_it_was_killed(tmp_path: Path) -> None:
    refuse_where_none_can_start()
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(SCRIPT, tmp_path / "scripts")
    subprocess.run([script, "start"], check=True, capture_output=True)
    run = Path((tmp_path / ".engine" / "host").read_text().strip().removeprefix("unix://")).parent
    try:
        with contextlib.closing(docker.DockerClient(f"unix://{run}/docker.sock")) as engine:
            engine.api.import_image_from_data(b"\0" * 10240, repository="empty")  # an archive of nothing
            of_the_host = engine.api.create_host_config(network_mode="host")
            made = engine.api.create_container("empty", ["/none"], host_config=of_the_host)
            with pytest.raises(docker.errors.APIError, match="/none"):
                engine.api.start(made)
        assert str(run) in Path("/proc/mounts").read_text()
        os.kill(int((run / "pid").read_text()), signal.SIGKILL)
    finally:
        stopped = subprocess.run([script, "stop"], check=False, capture_output=True, text=True)
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n"), stopped.stderr
    assert not run.exists()
    mounted = Path("/proc/mounts").read_text()
    assert str(run) not in mounted
    assert str(tmp_path) not in mounted
