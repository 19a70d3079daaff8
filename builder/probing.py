"""Run the probe in containers of an image, with this machine's GPUs."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, cast

from builder import devices, reading, render, verdict
from builder.container import TIMED_OUT, last_lines
from builder.errors import Problem, TimeLimitError, VerificationError
from builder.observed import SETTINGS

if TYPE_CHECKING:
    from builder.devices import Devices
    from builder.engine import Engine
    from builder.observed import Probed, Seen

FOLDER = "/vime-probe"
PROGRAMS = ("probe.py", "gpu_trial.py")
TIME_LIMIT_S = 900  # 16 GPUs on which every trial runs into its own limit, 16 of them at once, take 840
# What a result that is not our program's comes to, where it is read.
UNFIT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# Before `--`, interpreters: the first that has a torch goes on, or else the first at all, which says that it has none.
START = """
torch= first=
for python; do
    shift
    [ "$python" != -- ] || break
    command -v "$python" > /dev/null && [ -z "$torch" ] || continue
    first=${first:-$python}
    "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' && torch=$python
done
exec "${torch:-${first:-python3}}" "$@"
"""


def probe(engine: Engine, image_id: str, python: str | None, found: Devices) -> Probed:
    """What the GPUs do in two containers of the image: with the host's IPC namespace, and with one of their own.

    Args:
        python: the image's interpreter with torch; None: one of the usual.

    Raises:
        VerificationError: where the program did not run to its end. What it saw is no error here.
    """
    targets = engine.labels(image_id).get(f"{render.LABEL}.gpu_targets", "")
    seen = {setting: _seen(engine, image_id, python, found, setting, targets) for setting in SETTINGS}
    try:
        probed = verdict.judge(seen, tuple(filter(None, targets.split(";"))))
        _ = probed.table, probed.json()
    except UNFIT as error:
        raise _unreadable(error) from error
    return probed


def _unreadable(error: Exception) -> VerificationError:
    message = f"the probe's result cannot be read: {type(error).__name__}: {str(error)[:400]}"
    return VerificationError(Problem(message, hint="the image's Python may not be its own; try another: --python PATH"))


def _host(found: Devices, setting: str) -> dict[str, Any]:
    """What the container gets of its host: as `run` gives it, and no more privileges."""
    given = devices.host_options(found)
    return {
        **given,
        "ipc_mode": setting,
        "security_opt": ["no-new-privileges", *given["security_opt"]],
        "mem_limit": 0,  # a ROCm process takes gigabytes before it does anything, and there are many
    }


def _seen(engine: Engine, image_id: str, python: str | None, found: Devices, setting: str, targets: str) -> Seen:  # noqa: PLR0913, PLR0917 - the facts of one run
    nonce = secrets.token_hex(16)
    pythons = [python] if python else reading.USUAL
    rest = [] if setting == "host" else ["--only-ipc"]
    with engine.container(
        image_id,
        ["sh", "-c", START, "sh", *pythons, "--", f"{FOLDER}/probe.py", "--nonce", nonce, "--targets", targets, *rest],
        files={f"{FOLDER}/{name}": (render.PROGRAMS / name).read_bytes() for name in PROGRAMS},
        environment={"HOME": "/tmp"},  # noqa: S108 - the container's own tmpfs
        time_limit_s=TIME_LIMIT_S,
        host=_host(found, setting),
    ) as container:
        exit_code = container.wait()
        output = container.output()
    for line in output.splitlines():
        if line.startswith(nonce):
            try:
                return cast("Seen", json.loads(line.removeprefix(nonce)))
            except UNFIT as error:
                raise _unreadable(error) from error
    tail = last_lines(output) or None
    if exit_code == TIMED_OUT:
        raise TimeLimitError(Problem(f"the probe reached its time limit of {TIME_LIMIT_S} s", hint=tail))
    raise VerificationError(Problem(f"the probe did not run: exit code {exit_code} and no result", hint=tail))
