"""How a finished image is run: devices, memory, limits, and working copies over its editable trees."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder import terminal
from builder.devices import host_options
from builder.errors import EngineError, EngineGoneError, Problem, UsageError
from builder.schema import near_or_known
from builder.terminal import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from builder.devices import Devices
    from builder.engine import Engine
    from builder.manifest import Manifest

# RCCL and the memory saver lock what they map; a training process nests deep.
LIMITS = {"memlock": -1, "stack": 64 * 1024**2}
_FLAGS = {  # of `docker run`, by the SDK's name
    "network_mode": "--network",
    "ipc_mode": "--ipc",
    "cap_add": "--cap-add",
    "security_opt": "--security-opt",
    "ulimits": "--ulimit",
    "devices": "--device",
    "group_add": "--group-add",
    "binds": "--volume",
}


def session(image: str, command: Sequence[str], binds: Sequence[str], devices: Devices) -> Session:
    """The image with what training needs of its host; a shell where no command is given."""
    host = {
        "network_mode": "host",
        **host_options(devices),
        "ulimits": [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in LIMITS.items()],
        "binds": list(binds),
    }
    return Session(image=image, command=tuple(command) or ("bash",), environment={}, host=host)


def run(engine: Engine, session: Session, tell: Callable[[str], None]) -> int:
    """The exit code of the session's command.

    An engine without the right to raise limits (a rootless one) runs it under its own, and that is told.

    Raises:
        EngineError: where the container does not start, or the engine goes away.
    """
    try:
        return terminal.run(engine, session)
    except EngineGoneError:
        raise
    except EngineError as error:
        if "rlimit" not in str(error):
            raise
    tell(f"this engine may not raise limits: {', '.join(LIMITS)} stay what they are for the engine itself")
    host = {name: value for name, value in session.host.items() if name != "ulimits"}
    return terminal.run(engine, replace(session, host=host))


def folders(mounts: Mapping[str, str]) -> dict[str, Path]:
    """The working copies, whole paths by source.

    Raises:
        UsageError: where a folder is not there.
    """
    return {name: _folder(path) for name, path in mounts.items()}


def binds(manifest: Manifest, folders: Mapping[str, Path]) -> list[str]:
    """Working copies over the checkouts of the image, as `/here:/there`.

    Raises:
        UsageError: where a source has no checkout in the image.
    """
    return [f"{folder}:{_checkout(manifest, name)}" for name, folder in folders.items()]


def _checkout(manifest: Manifest, name: str) -> str:
    editable = [source.name for source in manifest.installed_by("editable")]
    if name not in manifest.sources:
        raise UsageError(Problem(f"no source {name!r} in {manifest.title}", hint=near_or_known(name, editable)))
    source = manifest.sources[name]
    if name not in editable:
        where = manifest.where("sources", name, "recipe")
        hint = f"editable are {', '.join(editable)}"
        raise UsageError(Problem(f"{name} is installed as a {source.recipe}; the image has no tree of it", where, hint))
    return source.checkout


def _folder(path: str) -> Path:
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(
            Problem(f"no folder {path!r}", hint=f"make it first: git clone or mkdir -p {shlex.quote(path)}")
        )
    if ":" in str(folder):
        raise UsageError(
            Problem(f"the engine takes no folder with a colon: {path!r}", hint="move it to a path without one")
        )
    return folder


def command_line(session: Session) -> str:
    """The `docker run` that does the same."""
    words = ["docker", "run", "--rm", "--interactive", "--tty", "--entrypoint", "", *_options(session.host)]
    return shlex.join([*words, session.image, *session.command])


def _options(host: Mapping[str, Any]) -> Iterator[str]:
    for name, value in host.items():
        for item in value if isinstance(value, list) else [value]:
            yield _FLAGS[name]
            yield f"{item['Name']}={item['Soft']}" if isinstance(item, dict) else item
