"""A container: what it is cut off from and brought, when it ends, and what it has written."""

from __future__ import annotations

import contextlib
import io
import math
import tarfile
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import docker
import docker.errors
import docker.types
import requests.exceptions

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMORY_BYTES = 16 * 1024**3
PROCESSES = 4096
TIMED_OUT = 124  # the exit code of `timeout`, which every container of ours runs in
GRACE_S = 30  # over its time limit, until a container whose `timeout` does not end it is ended from outside


class Container:
    """A running container."""

    def __init__(self, client: docker.DockerClient, container_id: str, time_limit_s: float) -> None:
        self._client = client
        self._deadline = time.monotonic() + time_limit_s + GRACE_S
        self.id = container_id

    def wait(self) -> int:
        """Its exit code, when it has ended; `TIMED_OUT` at its time limit, even where its image's `timeout` is none."""
        left = max(1, math.ceil(self._deadline - time.monotonic()))
        try:
            return int(self._client.api.wait(self.id, timeout=left)["StatusCode"])
        except requests.exceptions.RequestException:
            if time.monotonic() < self._deadline:
                raise
        with contextlib.suppress(docker.errors.APIError):  # it has just ended
            self._client.api.kill(self.id)
        return TIMED_OUT

    def output(self) -> str:
        """All that it has written, standard output and error together."""
        return str(self._client.api.logs(self.id).decode("utf-8", "replace"))


def last_lines(output: str) -> str:
    """The end of what a container has written: 20 lines at most, and no line without an end."""
    return "\n".join(output[-4000:].splitlines()[-20:])


def cut_off(*, network: bool) -> dict[str, Any]:
    """What keeps a container from its host, as the SDK's create_host_config has it."""
    return {
        "network_mode": "default" if network else "none",
        "read_only": True,
        "tmpfs": {"/tmp": "exec,size=4g"},  # noqa: S108 (the container's own)
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        "mem_limit": MEMORY_BYTES,
        "log_config": docker.types.LogConfig(type="json-file", config={"max-size": "64m"}),
    }


def archives(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files by their absolute paths, as a tar archive for each of their folders."""
    folders = sorted({str(PurePosixPath(path).parent) for path in files})
    return {folder: _archive(files, folder) for folder in folders}


def _archive(files: Mapping[str, bytes], folder: str) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in files.items():
            if str(PurePosixPath(path).parent) == folder:
                entry = tarfile.TarInfo(PurePosixPath(path).name)
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))
    return body.getvalue()
