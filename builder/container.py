"""A container that is cut off from its host: what it may take, when it ends, and what it has written."""

from __future__ import annotations

import contextlib
import io
import math
import secrets
import tarfile
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import docker
import docker.errors
import docker.types
import requests.exceptions

from builder.connection import answering

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TIMED_OUT = 124  # the exit code of `timeout`, which every container of ours runs in
GRACE_S = 30  # over its time limit, until a container whose `timeout` does not end it is ended from outside
MEMORY_BYTES = 16 * 1024**3
PROCESSES = 4096
CLEAN = "python -m builder clean"


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


@contextlib.contextmanager
def cut_off(  # noqa: PLR0913 (each is one fact of the run)
    client: docker.DockerClient,
    image: str,
    command: Sequence[str],
    *,
    labels: Mapping[str, str],
    files: Mapping[str, bytes],
    environment: Mapping[str, str],
    time_limit_s: int,
    network: bool,
    host: Mapping[str, Any],
) -> Iterator[Container]:
    """A started container that can write into memory alone, as much as it may have; `Engine.container` has the rest."""
    api = client.api
    name = f"vime-images-{secrets.token_hex(6)}"  # ours, so that it can go also where nobody learns its id
    volumes = f"{name}-volumes"
    config = api.create_host_config(**{**_limits(volumes, network=network), **host})
    try:
        with answering("to run a container", f"start it again and run this again; what it left goes by: {CLEAN}"):
            _fill(api, volumes, image, labels, files)
            api.create_container(
                image,
                # The container ends by itself, also when nobody is left to end it.
                ["timeout", "--kill-after=5", str(time_limit_s), *command],
                entrypoint=[],
                environment=dict(environment),
                host_config=config,
                labels=dict(labels),
                name=name,
                use_config_proxy=network,  # what has no network wants no proxy, nor its password
            )
            api.start(name)
            yield Container(client, name, time_limit_s)
    finally:
        for each in (name, volumes):  # volumes go with the last container that has them
            with contextlib.suppress(docker.errors.APIError, requests.exceptions.RequestException):
                api.remove_container(each, force=True, v=True)


def _limits(volumes: str, *, network: bool) -> dict[str, Any]:
    """What keeps a container from its host, as the SDK's create_host_config has it."""
    return {
        "network_mode": "default" if network else "none",
        "read_only": True,
        "tmpfs": {"/tmp": "exec,size=4g"},  # noqa: S108 (the container's own)
        "volumes_from": [f"{volumes}:ro"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        "mem_limit": MEMORY_BYTES,
        "log_config": docker.types.LogConfig(type="json-file", config={"max-size": "64m"}),
    }


def _fill(api: docker.APIClient, name: str, image: str, labels: Mapping[str, str], files: Mapping[str, bytes]) -> None:
    """Have the volumes of a container in another one, which never starts: the files', and what its image declares.

    A volume is a folder of the engine's disk without a limit, and what can be written into from outside can be from
    inside; by way of another container, it cannot.
    """
    folders = sorted({str(PurePosixPath(path).parent) for path in files})
    api.create_container(image, ["true"], entrypoint=[], labels=dict(labels), name=name, volumes=folders)
    for folder in folders:
        inside = {path: content for path, content in files.items() if str(PurePosixPath(path).parent) == folder}
        api.put_archive(name, folder, _archive(inside))


def _archive(files: Mapping[str, bytes]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(PurePosixPath(path).name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return body.getvalue()


def last_lines(output: str) -> str:
    """The end of what a container has written: 20 lines at most, and no line without an end."""
    return "\n".join(output[-4000:].splitlines()[-20:])
