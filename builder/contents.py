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
from builder.errors import ForgedRecordError, Problem
from builder.units import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from builder.engine import Engine


LONGEST = 64 * 1024**2  # bytes at and under a path: they are held in memory


def read(engine: Engine, image_id: str, paths: Iterable[str], called: str) -> dict[str, bytes]:
    """The files at and under some paths, by their own; of a path that is not there, nothing.

    Args:
        called: how the image is told of.

    Raises:
        ForgedRecordError: where they are more than any image of ours has.
        EngineError: where the engine failed or went away.
    """
    name = f"vime-images-{secrets.token_hex(6)}"
    with answering("to read files of an image"):
        engine.api.create_container(image_id, ["true"], entrypoint=[], labels=engine.labels_of_ours, name=name)
        try:
            return {path: content for asked in paths for path, content in _under(engine, name, asked, called)}
        finally:
            engine.api.remove_container(name, force=True, v=True)


def _under(engine: Engine, container: str, path: str, called: str) -> Iterator[tuple[str, bytes]]:
    with contextlib.suppress(docker.errors.NotFound):
        pieces, _ = engine.api.get_archive(container, path)
        body = io.BytesIO()
        for piece in pieces:
            body.write(piece)
            if body.tell() > LONGEST:
                message = f"{called}: {path} has more than {size(LONGEST)}, which no image of ours has"
                raise ForgedRecordError(Problem(message))
        body.seek(0)
        with tarfile.open(fileobj=body) as archive:
            for entry in archive:
                file = archive.extractfile(entry) if entry.isfile() else None
                if file:
                    yield str(PurePosixPath(path).parent / entry.name), file.read()
