"""A running container: when it ends, and what it has written."""

from __future__ import annotations

import contextlib
import math
import time

import docker
import docker.errors
import requests.exceptions

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
