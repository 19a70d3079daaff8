"""Verify a finished image: the checkout's own programs run in one container of it.

The image's copies of the programs are never asked: whoever broke the image may have broken them too.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pydantic

from builder import checklist, lists, render
from builder.container import TIMED_OUT, last_lines
from builder.errors import BuilderError, EngineGoneError, Problem, TimeLimitError, UsageError, VerificationError
from builder.report import Check, ended_by
from builder.schema import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest

FOLDER = "/vime-check"
# In the order of the proof's digest.
PROGRAMS = ("check.py", "checked.py", "device.py", "imports.py", "kinds.py", "seal.py", "trial.py")
TIME_LIMIT_S = 1800
STOPPED = 143  # the exit code of `timeout` after a SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What the image says it is, and what its checks found.

    Attributes:
        error: why the program did not run to its end, to be raised once that is reported; a failed check tells it too.
    """

    gpu_targets: tuple[str, ...]
    pins: str
    checks: tuple[Check, ...]
    error: BuilderError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the program in the container prints, as far as it is read here."""

    program_sha256: str
    list_sha256: str
    checks: tuple[Check, ...]


def made_from(engine: Engine, tag: str) -> str:
    """The name of the manifest that an image was made from.

    Raises:
        UsageError: where there is no such image, or it is none of ours.
    """
    if engine.image_id(tag) is None:
        near = did_you_mean(tag, engine.tags_with(f"{render.LABEL}.image"))
        raise UsageError(
            Problem(f"the engine has no image {tag!r}", hint=near or "python -m builder image IMAGE builds one")
        )
    name = engine.labels(tag).get(f"{render.LABEL}.image")
    if name is None:
        raise UsageError(
            Problem(
                f"{tag!r} is none of our images: it has no label {render.LABEL}.image",
                hint="docker image ls vime lists ours",
            )
        )
    return name


def verify(engine: Engine, image_id: str, manifest: Manifest, facts: Facts, *, tests: bool = False) -> Verified:
    """Run the manifest's checks in a container of the image, cut off from network and host.

    Args:
        tests: the sources' own tests too.
    """
    started = time.monotonic()
    config = engine.config(image_id)
    targets = (config.get("Labels") or {}).get(f"{render.LABEL}.gpu_targets", "")
    pins = (config.get("Labels") or {}).get(f"{render.LABEL}.pins", "unknown")
    seen = {"WorkingDir": config.get("WorkingDir"), "Entrypoint": config.get("Entrypoint"), "gpu_targets": targets}
    wanted = lists.text(checklist.wanted(manifest, facts, finished=True, tests=tests))
    error = None
    try:
        checks = _checks(engine, image_id, facts.python.executable, wanted, seen)
    except BuilderError as ended:
        error = ended
        checks = (ended_by(ended, "verification ran to its end", "verification", time.monotonic() - started),)
    return Verified(gpu_targets=tuple(filter(None, targets.split(";"))), pins=pins, checks=checks, error=error)


def _checks(engine: Engine, image_id: str, python: str, wanted: str, seen: Mapping[str, object]) -> tuple[Check, ...]:
    """What the checks found.

    Raises:
        VerificationError: where the program did not run to its end. Failed checks are no error here.
        EngineError: where its time was up, or the engine failed.
    """
    nonce = secrets.token_hex(16)
    files = {name: (render.PROGRAMS / name).read_bytes() for name in PROGRAMS}
    files |= {"checks.json": wanted.encode(), "config.json": json.dumps(seen).encode()}
    with engine.container(
        image_id,
        [python, f"{FOLDER}/check.py", "run", f"{FOLDER}/checks.json", "--nonce", nonce],
        files={f"{FOLDER}/{name}": content for name, content in files.items()},
        environment={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - the container's own tmpfs
        time_limit_s=TIME_LIMIT_S,
    ) as container:
        exit_code = container.wait()
        output = container.output()
    proof = _proof(output, nonce, exit_code)
    _assert_fresh(proof, files)
    return proof.checks


def _proof(output: str, nonce: str, exit_code: int) -> Proof:
    for line in output.splitlines():
        if line.startswith(nonce):
            try:
                return pydantic.TypeAdapter(Proof).validate_json(line.removeprefix(nonce))
            except pydantic.ValidationError as error:
                fault = error.errors(include_url=False)[0]
                reason = ": ".join(filter(None, [".".join(map(str, fault["loc"])), fault["msg"]]))
                raise _did_not_run(f"its result cannot be read: {reason}", "") from error
    tail = last_lines(output)
    if exit_code == TIMED_OUT:
        message = f"verification did not run to its end: the time limit of {TIME_LIMIT_S} s was reached"
        raise TimeLimitError(Problem(message, hint=f"its last lines:\n{tail}"))
    if exit_code == STOPPED:
        message = "verification did not run to its end: its container got SIGTERM, as from an engine that stops"
        lines = "".join(f"\n    {line}" for line in tail.splitlines())
        hint = "start it again and run this again; what it left goes by: python -m builder clean"
        raise EngineGoneError(Problem(message + lines, hint=hint))
    raise _did_not_run(f"exit code {exit_code} and no result", output)


def _assert_fresh(proof: Proof, files: Mapping[str, bytes]) -> None:
    program = hashlib.sha256(b"".join(files[name] for name in PROGRAMS)).hexdigest()
    wanted = hashlib.sha256(files["checks.json"]).hexdigest()
    if proof.program_sha256 != program or proof.list_sha256 != wanted:
        raise _did_not_run("the result belongs to another program or another list", "")
    names = [entry["name"] for entry in json.loads(files["checks.json"])["checks"]]
    if [check.name for check in proof.checks] != names or not names:
        raise _did_not_run("the result does not name the checks of the list", "")
    if not all(math.isfinite(check.seconds) for check in proof.checks):
        raise _did_not_run("its result has a time that is no number", "")


def _did_not_run(reason: str, output: str) -> VerificationError:
    return VerificationError(Problem(f"verification did not run: {reason}", hint=last_lines(output) or None))
