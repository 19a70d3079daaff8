"""What a build stands on: engine, registry, base, disk, memory, caches, GPUs; each with what to do about it."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder import devices, registry
from builder.engine import Engine
from builder.errors import BuilderError, EngineAbsentError, EngineError, RegistryError
from builder.probes import Fault, Probe, Untried, answers, report
from builder.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from builder.facts import Facts
    from builder.manifest import Manifest
    from builder.report import Report

    Base = tuple[Manifest, Facts]

GB = 10**9
JOB_BYTES = 4 * 1024**3  # of memory for a compile job, as templates/sources/wheel.j2 counts
CCACHE_BYTES = 5 * GB  # how large ccache lets its cache grow
SETTINGS = Path("/etc/docker/daemon.json")
# BuildKit's own rules, where nobody has set others: a tenth of the disk for its cache; of that, 13.8 % and at least
# 512 MB for cache mounts that no build has used for two days.
KEPT, KEPT_OF_MOUNTS, LEAST_OF_MOUNTS = 0.1, 0.138, 512 * 10**6
ROOM = 64  # GB, in the remedy
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[kmgt]?)i?b?", re.IGNORECASE)


@dataclass
class Machine:
    """The engine, if there is one; probes ask it one after the other."""

    settings: Path = SETTINGS
    engine: Engine | None = None
    missing: EngineError | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        try:
            self.engine = Engine(owner="vime-images")
        except EngineError as error:
            self.missing = error

    def asked(self) -> Engine:
        """The engine.

        Raises:
            Untried: where there is none that could be asked.
        """
        if self.engine is None:
            raise Untried(f"no engine to ask: {self.missing.problems[0].message if self.missing else ''}")
        return self.engine

    def folder(self) -> Path:
        """Where the engine keeps its data, on this machine's disk.

        Raises:
            Untried: where it is another machine's.
        """
        engine = self.asked()
        folder = Path(engine.about.get("DockerRootDir") or "/nowhere")
        if not (engine.is_local and folder.is_dir()):
            raise Untried(f"the engine keeps its data in {folder}, which this machine cannot see")
        return folder

    def close(self) -> None:
        if self.engine:
            self.engine.close()


def run(machine: Machine, bases: Sequence[Base]) -> Report:
    """Every probe of the machine and of some images' bases."""
    started = time.monotonic()
    probes = [*of_builds(machine, bases), *of_comfort(machine)]
    images = ", ".join(manifest.name for manifest, _ in bases)
    targets = [target for manifest, _ in bases for target in manifest.gpu_targets]
    return report(images, targets, answers(probes), time.monotonic() - started)


def of_builds(machine: Machine, bases: Sequence[Base], *, offline: bool = False) -> Iterator[Probe]:
    """What keeps an image from being built here."""
    yield _probe(machine, "a container engine answers, and is new enough", lambda: _engine(machine))
    yield _probe(machine, "the engine's disk has room for the base", lambda: _disk(machine, bases))
    yield _probe(machine, "memory is enough to compile", lambda: _memory(machine))
    for manifest, facts in {manifest.base.reference: (manifest, facts) for manifest, facts in bases}.values():
        image = manifest.base.image
        yield _probe(machine, f"the login for {image} can be read", lambda image=image: _login(image))  # type: ignore[misc]
        yield base_tag(machine, manifest, offline=offline)
        yield _probe(
            machine,
            f"the facts {manifest.base.facts} are of this base",
            lambda manifest=manifest, facts=facts: _facts(manifest, facts),  # type: ignore[misc]
        )


def base_tag(machine: Machine, manifest: Manifest, *, offline: bool = False) -> Probe:
    """Whether the registry has the base's digest under its tag."""
    name = f"{manifest.base.image} has its digest in the registry"
    return _probe(machine, name, lambda: _registry(machine, manifest, offline=offline))


def _probe(machine: Machine, name: str, ask: Callable[[], str]) -> Probe:
    def answer() -> tuple[str, tuple[str, ...]]:
        with machine.lock:
            detail = ask()
        return detail, (detail,)

    return Probe(name, "machine", answer)


def of_comfort(machine: Machine) -> Iterator[Probe]:
    """What builds go well without, and people ask afterwards why they are slow, or see no GPU."""
    yield _probe(machine, "the engine leaves the compiler's cache alone", lambda: _caches(machine))
    yield Probe("a container can have this machine's GPUs", "machine", lambda: (_gpus(machine), ()))


def _engine(machine: Machine) -> str:
    if machine.missing and not isinstance(machine.missing, EngineAbsentError):
        raise _fault(machine.missing)
    engine = machine.asked()
    slow = (
        "containerd's image store: a layer takes several times longer to export" if engine.has_containerd_store else ""
    )
    return f"{engine.version} at {engine.address}, {slow or engine.about.get('Driver', 'an unknown store')}"


def _fault(error: BuilderError) -> Fault:
    return Fault(error.problems[0].message, error.problems[0].hint or "")


def _login(image: str) -> str:
    try:
        found = registry.login_for(image)
    except EngineError as error:
        raise _fault(error) from None
    return "there is one" if found else "there is none; the registry is asked without"


def _registry(machine: Machine, manifest: Manifest, *, offline: bool) -> str:
    base = manifest.base
    if base.digest == UNKNOWN:
        raise Untried("base.digest is unknown")
    if offline:
        raise Untried("--offline asks no host")
    engine = machine.asked()
    try:
        now = registry.digest(engine, base.image)
    except RegistryError as error:
        raise Untried(error.problems[0].message) from error
    except EngineError as error:
        raise _fault(error) from error
    if now != base.digest:
        tag = base.image.rpartition(":")[2]
        hint = f"see what is new in it, then pin it: python -m builder bump {manifest.name} base={tag}"
        raise Fault(f"{base.image} is {now} today, base.digest is {base.digest}", hint)
    return base.digest


def _facts(manifest: Manifest, facts: Facts) -> str:
    if UNKNOWN in {facts.digest, manifest.base.digest}:
        raise Untried("a digest is unknown, in the manifest or in the facts")
    if (facts.image, facts.digest) != (manifest.base.image, manifest.base.digest):
        hint = f"python -m builder facts {manifest.base.facts} --image {manifest.base.reference}"
        raise Fault(f"they are of {facts.image}@{facts.digest}", hint)
    if facts.tools is None:
        return f"as published; to have it read: python -m builder facts {manifest.base.facts}"
    return "read from it"


def _disk(machine: Machine, bases: Sequence[Base]) -> str:
    folder = machine.folder()
    free = shutil.disk_usage(folder).free / GB
    engine = machine.asked()
    absent = [(manifest, facts) for manifest, facts in bases if engine.image_id(manifest.base.reference) is None]
    unknown = [manifest.base.image for manifest, facts in absent if facts.size_gb is None]
    if unknown:
        raise Untried(f"nobody knows how large {', '.join(unknown)} is: size_gb in its facts")
    wanted = {manifest.base.reference: facts.size_gb or 0.0 for manifest, facts in absent}
    size = sum(wanted.values())
    if free < size:
        hint = "see what may go: docker system df; or move the engine's data: `data-root` in its daemon.json"
        raise Fault(f"{free:.0f} GB are free in {folder}, the base takes {size:.0f} GB and the build some more", hint)
    return f"{free:.0f} GB are free in {folder}" + (
        f", the base takes {size:.0f} GB" if size else ", the base is there"
    )


def _memory(machine: Machine) -> str:
    about = machine.asked().about
    memory, cores = int(about.get("MemTotal") or 0), int(about.get("NCPU") or 1)
    jobs = min(memory // JOB_BYTES, cores)
    if not memory:
        raise Untried("the engine does not say how much memory it has")
    if jobs < 1:
        hint = "give the engine's machine more, or end what uses it"
        raise Fault(
            f"the engine has {memory / GB:.0f} GB of memory, one compile job takes {JOB_BYTES / GB:.0f} GB", hint
        )
    return f"{memory / GB:.0f} GB: at most {jobs} compile jobs on {cores} cores, fewer where others use it"


def _caches(machine: Machine) -> str:
    """Hold what the engine keeps of unused cache mounts against what ccache may fill; nobody is told when it goes."""
    folder = machine.folder()
    limit, by = mount_limit(_settings(machine), shutil.disk_usage(folder).total)
    if limit is None:
        return f"{by}: nothing is removed"
    if limit < CCACHE_BYTES:
        policy = {"builder": {"gc": {"enabled": True, "policy": [{"all": True, "keepStorage": f"{ROOM}GB"}]}}}
        hint = f"into {machine.settings}, then restart the engine: {json.dumps(policy)}"
        message = f"it cuts unused cache mounts to {limit / GB:.1f} GB ({by}); ccache fills {CCACHE_BYTES / GB:.0f} GB"
        raise Fault(message, hint)
    return f"it keeps {limit / GB:.1f} GB of unused cache mounts ({by})"


def _settings(machine: Machine) -> dict[str, Any]:
    """What the engine's configuration says, where it is the system's engine that is asked."""
    if os.environ.get("DOCKER_HOST") and machine.settings == SETTINGS:
        return {}
    try:
        found = json.loads(machine.settings.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def mount_limit(settings: dict[str, Any], disk_bytes: int) -> tuple[int | None, str]:
    """How many bytes of unused cache mounts an engine keeps, and by which rule; None where it removes none.

    Args:
        settings: its daemon.json.
        disk_bytes: the size of the disk that its data is on.
    """
    collector = (settings.get("builder") or {}).get("gc") or {}
    if collector.get("enabled") is False:
        return None, "builder.gc is off"
    policy = [rule for rule in collector.get("policy") or [] if _about_mounts(rule)]
    if collector.get("policy"):
        sizes = [size for rule in policy for key in ("keepStorage", "reservedSpace") if (size := _bytes(rule.get(key)))]
        return (min(sizes) if sizes else None), "builder.gc.policy"
    kept = _bytes(collector.get("defaultKeepStorage") or collector.get("defaultReservedSpace"))
    by = "builder.gc.defaultKeepStorage" if kept else "the engine's own rule"
    return max(LEAST_OF_MOUNTS, int((kept or KEPT * disk_bytes) * KEPT_OF_MOUNTS)), by


def _about_mounts(rule: dict[str, Any]) -> bool:
    kinds = [text for text in rule.get("filter") or [] if str(text).startswith("type=")]
    return not kinds or any("exec.cachemount" in text for text in kinds)


def _bytes(text: object) -> int | None:
    found = _SIZE.fullmatch(str(text or "").strip())
    return int(float(found["number"]) * 1000 ** "_kmgt".index(found["unit"].lower() or "_")) if found else None


def _gpus(machine: Machine) -> str:
    if machine.engine and not machine.engine.is_local:
        raise Untried(devices.why_none(is_local=False))
    found = devices.of_host()
    if not found.paths:
        raise Untried(f"this machine has no {devices.KFD}")
    if not any(Path(path) == devices.DRI for path in found.paths):
        raise Fault(f"there is {devices.KFD} and no {devices.DRI}", "load the driver: sudo modprobe amdgpu")
    return f"{', '.join(found.paths)}, for the groups {', '.join(map(str, found.groups)) or 'of root'}"
