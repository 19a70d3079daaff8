"""Verify a finished image: the checkout's own programs run in one container of it.

The image's copies of the programs are never asked: whoever broke the image may have broken them too.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from builder import checklist, lists, render
from builder.errors import Problem, TimeLimitError, UsageError, VerificationError
from builder.report import OUTCOMES, Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.manifest import Manifest

FOLDER = "/vime-check"
PROGRAMS = ("check.py", "device.py", "imports.py", "seal.py", "trial.py")  # in the order of the proof's digest
TIME_LIMIT_S = 1800
TIMED_OUT = 124  # the exit code of `timeout`, which every container of ours runs in


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What the image says it is, and what its checks found."""

    gpu_targets: tuple[str, ...]
    pins: str
    checks: tuple[Check, ...]


def made_from(engine: Engine, tag: str) -> str:
    """The name of the manifest that an image was made from.

    Raises:
        UsageError: where there is no such image, or it is none of ours.
    """
    if engine.image_id(tag) is None:
        raise UsageError(Problem(f"the engine has no image {tag!r}", hint="python -m builder image IMAGE builds one"))
    name = engine.labels(tag).get(f"{render.LABEL}.image")
    if name is None:
        raise UsageError(Problem(f"{tag!r} is none of our images: it has no label {render.LABEL}.image"))
    return name


def verify(engine: Engine, image_id: str, manifest: Manifest, facts: Facts, *, tests: bool = False) -> Verified:
    """Run the manifest's checks in a container of the image, cut off from network and host.

    Args:
        tests: the sources' own tests too.

    Raises:
        VerificationError: where the program did not run to its end. Failed checks are no error here.
    """
    config = engine.config(image_id)
    targets = (config.get("Labels") or {}).get(f"{render.LABEL}.gpu_targets", "")
    seen = {"WorkingDir": config.get("WorkingDir"), "Entrypoint": config.get("Entrypoint"), "gpu_targets": targets}
    wanted = lists.text(checklist.wanted(manifest, facts, finished=True, tests=tests))
    nonce = secrets.token_hex(16)
    files = {name: (render.PROGRAMS / name).read_bytes() for name in PROGRAMS}
    files |= {"checks.json": wanted.encode(), "config.json": json.dumps(seen).encode()}
    command = [
        facts.python.executable,
        f"{FOLDER}/check.py",
        "run",
        f"{FOLDER}/checks.json",
        "--nonce",
        nonce,
    ]
    with engine.container(
        image_id,
        command,
        files={f"{FOLDER}/{name}": content for name, content in files.items()},
        environment={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - the container's own tmpfs
        time_limit_s=TIME_LIMIT_S,
    ) as container:
        exit_code = container.wait()
        output = container.output()
    proof = _proof(output, nonce, exit_code)
    _assert_fresh(proof, files)
    return Verified(
        gpu_targets=tuple(filter(None, targets.split(";"))),
        pins=(config.get("Labels") or {}).get(f"{render.LABEL}.pins", "unknown"),
        checks=tuple(_check(entry) for entry in cast("list[dict[str, object]]", proof["checks"])),
    )


def _proof(output: str, nonce: str, exit_code: int) -> dict[str, object]:
    for line in output.splitlines():
        if line.startswith(nonce):
            try:
                proof = json.loads(line.removeprefix(nonce))
            except ValueError as error:
                raise _did_not_run(f"its result cannot be read: {error}", output) from error
            return cast("dict[str, object]", proof)
    if exit_code == TIMED_OUT:
        message = f"verification did not run to its end: the time limit of {TIME_LIMIT_S} s was reached"
        raise TimeLimitError(Problem(message, hint="\n".join(["its last lines:", *output.splitlines()[-20:]])))
    raise _did_not_run(f"exit code {exit_code} and no result", output)


def _assert_fresh(proof: Mapping[str, object], files: Mapping[str, bytes]) -> None:
    program = hashlib.sha256(b"".join(files[name] for name in PROGRAMS)).hexdigest()
    wanted = hashlib.sha256(files["checks.json"]).hexdigest()
    if proof.get("program_sha256") != program or proof.get("list_sha256") != wanted:
        raise _did_not_run("the result belongs to another program or another list", "")
    names = [entry["name"] for entry in json.loads(files["checks.json"])["checks"]]
    found = cast("list[dict[str, object]]", proof.get("checks", []))
    if [entry.get("name") for entry in found] != names or not names:
        raise _did_not_run("the result does not name the checks of the list", "")
    if strange := [str(entry.get("outcome")) for entry in found if entry.get("outcome") not in OUTCOMES]:
        raise _did_not_run(f"its result has an outcome {strange[0]!r}", "")


def _check(entry: Mapping[str, object]) -> Check:
    return Check(
        name=str(entry["name"]),
        kind=str(entry["kind"]),
        outcome=cast("Outcome", entry["outcome"]),
        detail=str(entry["detail"]),
        hint=str(entry["hint"]),
        seconds=float(cast("float", entry["seconds"])),
        notes=tuple(map(str, cast("list[str]", entry["notes"]))),
    )


def _did_not_run(reason: str, output: str) -> VerificationError:
    tail = "\n".join(output.splitlines()[-20:])
    return VerificationError(Problem(f"verification did not run: {reason}", hint=tail or None))
