"""The one room that talks to a container engine, through the docker SDK."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import docker
import docker.errors
import docker.utils.config
import docker.utils.proxy
import requests
import requests.exceptions

from builder import client, container
from builder.connection import A_PRIVATE_ONE, answering, connect
from builder.errors import EngineError, EngineGoneError, EngineTooOldError, Problem
from builder.told import LOG

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from builder.container import Container

OWNER = "vime-images.owner"
CLIENT = "vime-images.client"  # of a container: the process that looks after it
# `${VARIABLE#pattern}` in a Dockerfile needs BuildKit 0.13, which came with Engine 26.
OLDEST = (26, 0)
# With the containerd store, an older engine cannot take a build's input from its request (moby 47717).
OLDEST_WITH_CONTAINERD_STORE = (27, 5)


class Layer(NamedTuple):
    """An instruction as the engine remembers it, and what it added to the image."""

    instruction: str
    size: int  # bytes; an instruction that makes no layer has 0


def _tell(answer: requests.Response, **_: object) -> None:
    """What was asked, without its query: that has arguments of builds, and proxies with their passwords."""
    asked, path = answer.request, urlsplit(str(answer.url)).path
    LOG.debug("engine: %s %s: %d (%.2f s)", asked.method, path, answer.status_code, answer.elapsed.total_seconds())


class Engine:
    """A container engine that answers and is new enough; all that it makes carries its owner's label."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._client, self.address = connect()
        self.api = self._client.api
        self.api.hooks["response"].append(_tell)
        with answering("to tell about itself"):
            self.about: Mapping[str, Any] = self._client.info()
        self.version: str = self.about["ServerVersion"]
        self._assert_new_enough()

    @property
    def labels_of_ours(self) -> dict[str, str]:
        """The labels of what this process makes."""
        return {OWNER: self.owner, CLIENT: client.this()}

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine; a socket alone may be forwarded from another."""
        by_socket = self.api.base_url.startswith("http+docker://localhost")
        return by_socket and self.about.get("Name") == socket.gethostname()

    @property
    def proxies(self) -> dict[str, str]:
        """How a step reaches other hosts, as this user's docker has it; of such arguments BuildKit keeps no trace."""
        listed = docker.utils.config.load_general_config().get("proxies") or {}
        chosen: Any = listed.get(self.address) or listed.get("default") or {}
        found: Any = docker.utils.proxy.ProxyConfig.from_dict(chosen).get_environment()
        return dict(found)

    def close(self) -> None:
        self._client.close()

    @property
    def has_containerd_store(self) -> bool:
        """Whether images are kept by containerd, and not by a graph driver."""
        return ["driver-type", "io.containerd.snapshotter.v1"] in (self.about.get("DriverStatus") or [])

    def _assert_new_enough(self) -> None:
        found = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        oldest = OLDEST_WITH_CONTAINERD_STORE if self.has_containerd_store else OLDEST
        if found < oldest:
            store = " with the containerd image store" if self.has_containerd_store else ""
            wanted = ".".join(map(str, oldest))
            raise EngineTooOldError(
                Problem(
                    f"the engine is version {self.version}; {wanted} or newer is needed{store}",
                    hint=f"upgrade it; {A_PRIVATE_ONE}",
                )
            )

    # Images

    @answering("to find an image")
    def image_id(self, reference: str) -> str | None:
        """The id of an image that this engine has, by any reference to it."""
        try:
            return str(self.api.inspect_image(reference)["Id"])  # type: ignore[no-untyped-call]
        except (docker.errors.ImageNotFound, docker.errors.NullResource):  # an empty name is no image's
            return None

    @answering("to list its images")
    def tags_with(self, label: str) -> list[str]:
        """The tags of all images that have a label."""
        images = self.api.images(filters={"label": label})
        return sorted(tag for image in images for tag in image["RepoTags"] or ())

    def labels(self, reference: str) -> dict[str, str]:
        """The labels of an image."""
        return dict(self.config(reference).get("Labels") or {})

    @answering("to show an image")
    def config(self, reference: str) -> dict[str, Any]:
        """How an image starts: `Entrypoint`, `WorkingDir`, `Env`, `Labels`."""
        return dict(self.api.inspect_image(reference)["Config"])  # type: ignore[no-untyped-call]

    @answering("to show an image")
    def digests(self, reference: str) -> tuple[str, ...]:
        """The names with digests that registries know an image by; of one that was made here, none."""
        return tuple(self.api.inspect_image(reference).get("RepoDigests") or ())  # type: ignore[no-untyped-call]

    @answering("to show an image")
    def size(self, reference: str) -> int:
        """What an image takes on this engine's disk, in bytes."""
        return int(self.api.inspect_image(reference)["Size"])  # type: ignore[no-untyped-call]

    @answering("to show an image")
    def history(self, reference: str) -> tuple[Layer, ...]:
        """What made an image, the oldest first; its base's too."""
        entries = self.api.history(reference)  # type: ignore[no-untyped-call]
        return tuple(Layer(str(entry["CreatedBy"]), int(entry["Size"])) for entry in reversed(entries))

    @answering("to tag an image")
    def tag(self, image_id: str, reference: str) -> None:
        """Give an image a tag; an image that had it loses it."""
        repository, _, tag = reference.rpartition(":")
        self.api.tag(image_id, repository, tag)

    @answering("to remove an image")
    def remove_image(self, reference: str) -> None:
        """Take a tag away, and with its last tag the image."""
        self.api.remove_image(reference)

    @answering("to import a root file system")
    def import_root(self, archive: IO[bytes], reference: str, changes: Sequence[str]) -> str:
        """Make an image of a root file system's tar archive; its id."""
        repository, _, tag = reference.partition(":")
        changes = [*changes, f"LABEL {OWNER}={self.owner}"]
        # In pieces: of a file, the SDK announces the length and sends chunks, which the engine refuses.
        pieces = iter(lambda: archive.read(1024**2), b"")
        self.api.import_image_from_stream(pieces, repository=repository, tag=tag, changes=changes)
        found = self.image_id(reference)
        if found is None:
            raise EngineError(
                Problem(
                    f"the engine took {reference} and does not have it",
                    hint="another process may have removed it: run this again",
                )
            )
        return found

    # Builds, for the room `buildkit`

    def post_build(self, parameters: Mapping[str, str], body: IO[bytes]) -> Iterator[dict[str, Any]]:
        """The events of a build, as the engine sends them."""
        address = f"{self.api.base_url}/v{self.api.api_version}/build"
        headers = {"Content-Type": "application/x-tar"}
        try:
            # An hour without a word is nothing unusual for a compiler.
            with self.api.post(
                address, params=dict(parameters), data=body, headers=headers, stream=True, timeout=None
            ) as answer:
                if answer.status_code != requests.codes.ok:
                    raise EngineError(
                        Problem(
                            f"the engine refuses the build: {_message(answer)}",
                            hint="see whether it builds at all: python -m builder doctor",
                        )
                    )
                yield from _json_lines(answer.iter_lines(chunk_size=None))
        except requests.exceptions.RequestException as error:
            hint = (
                "start it again and build again: finished steps are in its cache; a step's process may have outlived it"
            )
            raise EngineGoneError(Problem(f"the engine went away during the build: {error}", hint=hint)) from error

    def cancel_build(self, build_id: str) -> None:
        """Stop a build in the engine. On a connection of its own: the build's is still being read."""
        with (
            contextlib.suppress(EngineError, requests.exceptions.RequestException, docker.errors.DockerException),
            contextlib.closing(connect()[0]) as client,
        ):
            address = f"{client.api.base_url}/v{client.api.api_version}/build/cancel"
            client.api.post(address, params={"id": build_id}, timeout=5).close()

    # Containers

    def container(  # noqa: PLR0913 - each is one fact of the run
        self,
        image: str,
        command: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        time_limit_s: int = 600,
        network: bool = False,
        host: Mapping[str, Any] | None = None,
    ) -> contextlib.AbstractContextManager[Container]:
        """A started container of `image`, cut off from host and network, that is gone when the block ends.

        Args:
            files: absolute paths and contents; nothing can be written into their folders.
            host: what it is given of its host all the same, as the SDK's create_host_config has it.
        """
        return container.cut_off(
            self._client,
            image,
            command,
            labels=self.labels_of_ours,
            files=files or {},
            environment=environment or {},
            time_limit_s=time_limit_s,
            network=network,
            host=host or {},
        )

    @answering("to remove what is left over")
    def remove_leftovers(self) -> None:
        """Remove what carries this owner's label: containers, then images."""
        mine = {"label": f"{OWNER}={self.owner}"}
        for left in self.api.containers(all=True, filters=mine):
            self.api.remove_container(left["Id"], force=True, v=True)
        for image in self.api.images(filters=mine):
            self.api.remove_image(image["Id"], force=True)


def _json_lines(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.strip():
            yield json.loads(line)


def _message(answer: requests.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError):
        return answer.text[:400]
