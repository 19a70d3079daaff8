"""Read a base's facts from one container of it, and hold what was published against them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pydantic
from packaging.utils import canonicalize_name

from builder import recording, records, registry, render
from builder import vocabulary as v
from builder.container import last_lines
from builder.errors import BaseFactsError, ForgedRecordError, Problem, RenderError
from builder.facts import Facts
from builder.trace import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from builder.engine import Engine
    from builder.manifest import Manifest

FOLDER = "/vime-base"
PROGRAMS = ("base.py", "device.py", "seal.py")
TIME_LIMIT_S = 900
# Any interpreter will do to begin with: the program goes on in the one that imports torch.
START = 'for python in "$@"; do command -v "$python" > /dev/null && exec "$python" "${ASK[@]}"; done; exit 127'
USUAL = ("/opt/venv/bin/python", "python3", "python", "/opt/conda/bin/python")
MAPPINGS = ("env", "distributions", "flavours", "requirements")
PLAIN = ("image", "digest", "system", "entrypoint", "rocm_root", "device_code", "tools", "pip_check")
PYTHON = ("version", "executable", "site_packages")


@dataclass(frozen=True, slots=True)
class Reading:
    """What an image says of itself.

    Attributes:
        facts: with None, or `unknown`, where it does not tell.
        remarks: what could not be read, or cannot be written down.
    """

    facts: Facts
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that the image contradicts; it has `found`, or nothing of the kind."""

    key: tuple[str, ...]
    known: object
    found: object | None


def read(engine: Engine, image: str, digest: str = v.UNKNOWN, python: str | None = None) -> Reading:
    """The facts of an image that the engine has.

    Args:
        image: its name and tag.
        digest: that it was pulled by, where it is known.
        python: an interpreter to try first.

    Raises:
        BaseFactsError: where nothing can be read in it.
    """
    reference = image if digest == v.UNKNOWN else f"{image}@{digest}"
    config = engine.config(reference)
    found, remarks = inside(engine, reference, [python] if python else [])
    env, env_unknown = _variables(config.get("Env") or [], remarks)
    installed = {name: entry for name, entry in found["distributions"].items() if _is(v.ExactVersion, entry["version"])}
    odd = sorted(set(found["distributions"]) - set(installed))
    remarks += [f"{name}: {found['distributions'][name]['version']!r} is no version" for name in odd]
    values: dict[str, Any] = {
        "image": image,
        "digest": _digest(engine, reference, image, digest),
        "sources": {},
        "size_gb": round(engine.size(reference) / 1e9, 1),
        "env": env,
        "env_unknown": env_unknown,
        "entrypoint": tuple(config.get("Entrypoint") or ()),
        **_of_program(found, dict(sorted(installed.items()))),
    }
    try:
        return Reading(Facts(**values), tuple(remarks))
    except pydantic.ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise BaseFactsError(
            *(Problem(f"{reference} says what no facts can hold: {fault}", hint=_shell(reference)) for fault in faults)
        ) from None


def _of_program(found: Mapping[str, Any], installed: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that the program in the container has found."""
    return {
        "system": found["system"] or v.UNKNOWN,
        "python": found["python"],
        "rocm_root": found["rocm_root"],
        "device_code": _tuple(found["device_code"]),
        "tools": _tuple(found["tools"]),
        "pip_check": _tuple(found["pip_check"]),
        "distributions": {name: entry["version"] for name, entry in installed.items()},
        "flavours": {name: entry["flavour"] for name, entry in installed.items() if entry["flavour"]},
        "requirements": {name: tuple(entry["requires"]) for name, entry in installed.items() if entry["requires"]},
    }


def _variables(entries: Sequence[str], remarks: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that an image sets, and the names of those whose value cannot be written down."""
    pairs = {name: value for name, _, value in (entry.partition("=") for entry in sorted(entries))}
    named = {name: value for name, value in pairs.items() if _is(v.EnvName, name)}
    remarks += [f"ENV {name!r} is no name" for name in pairs if name not in named]
    odd = tuple(name for name, value in named.items() if not _is(v.EnvValue, value))
    remarks += [f"ENV {name}: its value is not one line" for name in odd]
    return {name: value for name, value in named.items() if name not in odd}, odd


def inside(engine: Engine, reference: str, first: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What the program in the container has found, and what it had to remark.

    Raises:
        BaseFactsError: where it did not run to its end.
    """
    nonce = secrets.token_hex(16)
    words = [f"{FOLDER}/base.py", "find", "--nonce", nonce, *(word for path in first for word in ("--python", path))]
    script = f"ASK=({' '.join(words)}); {START}"
    with engine.container(
        reference,
        ["bash", "-c", script, "base", *first, *USUAL],
        files={f"{FOLDER}/{name}": (render.PROGRAMS / name).read_bytes() for name in PROGRAMS},
        environment={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - the container's own tmpfs
        time_limit_s=TIME_LIMIT_S,
    ) as container:
        exit_code = container.wait()
        output = container.output()
    lines = output.splitlines()
    results = [line.removeprefix(nonce) for line in lines if line.startswith(nonce)]
    if exit_code or len(results) != 1:
        said = f"exit code {exit_code}; its last lines:\n{last_lines(output)}"
        none = "it has no python" if exit_code == 127 and not lines else said  # noqa: PLR2004 (the shell's: not found)
        raise BaseFactsError(Problem(f"{reference} cannot be read: {none}", hint=_shell(reference)))
    try:
        found = records.read(results[0], records.Inside, f"the answer of {reference}").model_dump()
    except ForgedRecordError as error:
        message = f"{reference} cannot be read: {error.problems[0].message}"
        raise BaseFactsError(Problem(message, hint=_shell(reference))) from error
    return found, [line for line in lines if not line.startswith(nonce)]


def _shell(reference: str) -> str:
    return f"a shell in it: docker run --rm -it --entrypoint bash {reference}"


def _digest(engine: Engine, reference: str, image: str, digest: str) -> str:
    if digest != v.UNKNOWN:  # the engine has found it by that
        return digest
    mine = registry.repository(image)
    found = {known.partition("@")[2] for known in engine.digests(reference) if known.partition("@")[0] == mine}
    return found.pop() if len(found) == 1 else v.UNKNOWN


def _tuple(found: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(found)


def _is(kind: Any, value: str) -> bool:  # noqa: ANN401 (a type with its rule)
    try:
        pydantic.TypeAdapter(kind).validate_python(value)
    except pydantic.ValidationError:
        return False
    return True


def differences(known: Facts, found: Facts) -> Iterator[Difference]:
    """Each fact that the image contradicts; what only one of the two tells is no contradiction."""
    for key in PLAIN:
        mine, theirs = getattr(known, key), getattr(found, key)
        if mine != theirs and not {mine, theirs} & {None, v.UNKNOWN}:
            yield Difference((key,), mine, theirs)
    for key in PYTHON:
        mine, theirs = getattr(known.python, key), getattr(found.python, key)
        if mine != theirs:
            yield Difference(("python", key), mine, theirs)
    yield from (
        Difference(("env_unknown", name), "set", None) for name in known.env_unknown if name not in found.variables
    )
    for key in MAPPINGS:
        yield from _parts(key, getattr(known, key), getattr(found, key))


def _parts(key: str, known: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> Iterator[Difference]:
    if known is None or found is None:
        return
    for name, mine in known.items():
        theirs = found.get(name if key == "env" else canonicalize_name(name))  # a reading has canonical names
        if mine != theirs:
            yield Difference((key, name), mine, theirs)


def expect(engine: Engine, manifest: Manifest, known: Facts, watch: Callable[[Event], None]) -> None:
    """Read the base of an image that is to be built, and stop on a surprise.

    Raises:
        BaseFactsError: with a line to write into the facts for each surprise.
    """
    watch(Event("", f"reading the base, against images/bases/{manifest.base.facts}.yaml"))
    found = read(engine, manifest.base.image, manifest.base.digest, known.python.executable)
    for remark in found.remarks:
        watch(Event("", f"of the base: {remark}"))
    assert_expected(manifest, known, found)


def assert_expected(manifest: Manifest, known: Facts, reading: Reading) -> None:
    """Stop where an image's base is not what its facts say, or has what would change the image's Dockerfile.

    Raises:
        BaseFactsError: with a line to write into the facts for each surprise.
    """
    found = reading.facts
    wrong = list(differences(known, found))
    shadows = list(_shadows(manifest, known, found))
    problems = [_told(known, each) for each in wrong if each.key[0] != "env_unknown"]
    if unset := [each.key[1] for each in wrong if each.key[0] == "env_unknown"]:
        where = known.where("env_unknown", known.env_unknown.index(unset[0]))
        problems.append(Problem(f"the base does not set {', '.join(unset)}", where, "take that out of env_unknown"))
    problems += shadows
    if problems:
        name, count = manifest.base.facts, len(wrong) + len(shadows)
        hint = f"see all of it, and have it written: python -m builder facts {name}"
        message = f"{count} facts of {manifest.base.reference} are others than images/bases/{name}.yaml has"
        raise BaseFactsError(*problems, Problem(message, hint=hint))


def _told(known: Facts, difference: Difference) -> Problem:
    where = known.where(*difference.key)
    name = ".".join(difference.key)
    if difference.found is None:
        return Problem(f"the base has no {name}; its facts say {_short(difference.known)}", where, "remove the line")
    message = f"{name} is {_short(difference.found)} in the base; its facts say {_short(difference.known)}"
    return Problem(message, where, f"write it as {difference.key[-1]}: {recording.written(difference.found)}")


def _shadows(manifest: Manifest, known: Facts, found: Facts) -> Iterator[Problem]:
    """Variables of the base that its facts do not name, and the Dockerfile would have to know of."""
    where = known.where("env")
    new = {name: value for name, value in found.env.items() if name not in known.env}
    for name in new:
        if name in manifest.forbidden_env:
            where_forbidden = manifest.where("forbidden_env", name)
            hint = "take a base without it, or allow it: remove the line"
            yield Problem(f"the base sets {name!r}, which the manifest forbids", where_forbidden, hint)
    try:
        plain = render.render(manifest, known)
    except RenderError:
        return  # nothing to hold against it
    for name, value in new.items():
        more = known.model_copy(
            update={
                "env": {**known.env, name: value},
                "env_unknown": tuple(each for each in known.env_unknown if each != name),
            }
        )
        hint = f"add it to env, and render again: {name}: {recording.written(value)}"
        try:
            changed = render.render(manifest, more) != plain
        except RenderError as error:
            changed, hint = True, f"{hint}; {error.problems[0].message}"
        if changed:
            yield Problem(f"the base sets {name!r} to {value!r}, which changes the Dockerfile", where, hint)


def _short(value: object) -> str:
    text = recording.written(value)
    return text if len(text) <= v.LONGEST else f"{text[: v.LONGEST]}..."
