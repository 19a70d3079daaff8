"""Files of an image, read from a container of it that never starts."""

from __future__ import annotations

import contextlib
import io
import secrets
import tarfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import docker.errors

from builder.connection import answering

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from builder.engine import Engine


def read(engine: Engine, image_id: str, paths: Iterable[str]) -> dict[str, bytes]:
    """The files at and under some paths, by their own; of a path that is not there, nothing.

    Raises:
        EngineError: where the engine failed or went away.
    """
    name = f"vime-images-{secrets.token_hex(6)}"
    with answering("to read files of an image"):
        engine.api.create_container(image_id, ["true"], entrypoint=[], labels=engine.labels_of_ours, name=name)
        try:
            return {path: content for asked in paths for path, content in _under(engine, name, asked)}
        finally:
            engine.api.remove_container(name, force=True, v=True)


def _under(engine: Engine, container: str, path: str) -> Iterator[tuple[str, bytes]]:
    with contextlib.suppress(docker.errors.NotFound):
        pieces, _ = engine.api.get_archive(container, path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            for entry in archive:
                file = archive.extractfile(entry) if entry.isfile() else None
                if file:
                    yield str(PurePosixPath(path).parent / entry.name), file.read()
