"""The software of an image as CycloneDX: Python distributions, Debian packages, git sources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cyclonedx.exception import CycloneDxException
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder import contents, reading, records
from builder.made import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.utils import NormalizedName

    from builder.engine import Engine
    from builder.facts import Facts
    from builder.made import Made

DPKG = "/var/lib/dpkg/status"
PROPERTY = "vime-image"


def of(engine: Engine, made: Made, facts: Facts | None) -> str:
    """An image's bill of materials as CycloneDX 1.6 in JSON; its Python is asked in a container of it.

    Args:
        facts: of the image's base; without them, what came with it is told only as far as it is sealed.

    Raises:
        BaseFactsError: where the image's Python does not say what it has.
        ForgedRecordError: where what the image carries, or says that it has, can be no software.
        EngineError: where the engine failed or went away.
    """
    found, _ = reading.inside(engine, made.image_id, [facts.python.executable] if facts else [])
    status = contents.read(engine, made.image_id, [DPKG], made.tag).get(DPKG)
    return written(made, found, None if status is None else status.decode("utf-8", "replace"), facts)


def written(made: Made, found: Mapping[str, Any], status: str | None, facts: Facts | None) -> str:
    """The same, of what the image's Python has said, and of dpkg's list where there is one.

    Raises:
        ForgedRecordError: where what the image carries, or says that it has, can be no software.
    """
    try:
        return JsonV1Dot6(_bom(made, found, status, facts)).output_as_string(indent=2) + "\n"
    except (ValueError, CycloneDxException) as error:  # a name or a version that no package can have
        raise records.forged(f"what {made.tag} says that it has", str(error)) from error


def _bom(made: Made, found: Mapping[str, Any], status: str | None, facts: Facts | None) -> Bom:
    image = Component(
        type=ComponentType.CONTAINER,
        name=made.tag,
        version=made.image_id,
        bom_ref=made.image_id,
        properties=_properties(
            manifest=made.label("manifest"),
            pins=made.pins,
            gpu_targets=made.label("gpu_targets"),
            system=found["system"] or UNKNOWN,
            debian_packages=f"{UNKNOWN}: it has no {DPKG}" if status is None else "listed",
        ),
    )
    distributions = dict(_distributions(made, found["distributions"], facts))
    others = [*_sources(made), *(_packages(status, found["system"] or "") if status else ())]
    bom = Bom(components=[*distributions.values(), *others])
    bom.metadata.component = image
    bom.register_dependency(image, [*distributions.values(), *others])
    for name, component in distributions.items():
        needs = {canonicalize_name(Requirement(text).name) for text in found["distributions"][name]["requires"]}
        bom.register_dependency(component, [distributions[need] for need in sorted(needs) if need in distributions])
    return bom


def _distributions(
    made: Made, found: Mapping[str, Mapping[str, Any]], facts: Facts | None
) -> Iterator[tuple[str, Component]]:
    tell = _Origins(made, facts)
    for name, entry in sorted(found.items()):
        version = str(entry["version"])
        origin, sha256 = tell(canonicalize_name(name), version)
        flavour = entry["flavour"] or version.partition("+")[2]
        yield (
            name,
            Component(
                name=name,
                version=version,
                bom_ref=f"python:{name}",
                purl=PackageURL("pypi", name=name, version=version),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else (),
                properties=_properties(origin=origin, flavour=flavour),
            ),
        )


class _Origins:
    """Where a distribution came from, as far as the image's own records tell."""

    def __init__(self, made: Made, facts: Facts | None) -> None:
        self._sources = {
            canonicalize_name(record.distribution): name for name, record in made.sources.items() if record.distribution
        }
        self._planned = {
            (canonicalize_name(entry.name), entry.version): (f"plan {step}", entry.sha256 or "")
            for step, plan in made.plans.items()
            for entry in plan.distributions
        }
        carried = made.record("manifest.json", records.Manifest)
        tools = {**carried.build_tools, **carried.installer} if carried else {}
        self._tools = {
            canonicalize_name(name): (tool.version.removeprefix("=="), tool.sha256) for name, tool in tools.items()
        }
        prebuilt = carried.prebuilt if carried else {}
        self._prebuilt = {canonicalize_name(name): wheel.sha256 for name, wheel in prebuilt.items()}
        seal = made.record("seal.json", records.Seal)
        sealed = seal.distributions if seal else {}
        self._base = {(canonicalize_name(name), each.version) for name, each in sealed.items() if each.step == "base"}
        if facts:
            self._base |= {(canonicalize_name(name), version) for name, version in facts.distributions.items()}

    def __call__(self, name: NormalizedName, version: str) -> tuple[str, str]:
        """The origin, and the digest of the wheel where that is on record."""
        if name in self._sources:
            return f"source {self._sources[name]}", ""
        if name in self._prebuilt:
            return "prebuilt wheel", self._prebuilt[name]
        if (name, version) in self._planned:
            return self._planned[name, version]
        if name in self._tools and self._tools[name][0] == version:
            return "build tool", self._tools[name][1]
        return ("base" if (name, version) in self._base else UNKNOWN), ""


def _sources(made: Made) -> Iterator[Component]:
    for name, record in made.sources.items():
        repository, commit, tag = record.repository or UNKNOWN, record.commit or UNKNOWN, record.tag or ""
        patches = {f"patch.{at}": f"{each.path} sha256:{each.sha256}" for at, each in enumerate(record.patches)}
        github = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+?)(?:\.git)?", repository)
        yield Component(
            name=name,
            version=tag or commit,
            bom_ref=f"git:{name}",
            purl=PackageURL("github", github[1].lower(), github[2].lower(), commit) if github else None,
            external_references=[ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(repository))],
            properties=_properties(commit=commit, checkout=record.checkout or "", **patches),
        )


def _packages(status: str, system: str) -> Iterator[Component]:
    """What dpkg has installed; of a package that was removed, its list may keep a paragraph."""
    distribution, _, release = system.partition(" ")
    qualifier = {"distro": f"{distribution}-{release}"} if release else {}
    for fields in _paragraphs(status):
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, version, machine = (fields.get(key, "") for key in ("Package", "Version", "Architecture"))
        yield Component(
            name=name,
            version=version,
            bom_ref=f"debian:{name}:{machine}",
            purl=PackageURL("deb", distribution or "debian", name, version, {"arch": machine, **qualifier}),
            properties=_properties(architecture=machine, source=fields.get("Source", "").partition(" ")[0]),
        )


def _paragraphs(status: str) -> Iterator[dict[str, str]]:
    for text in filter(None, re.split(r"\n\s*\n", status.strip())):
        fields = (line.partition(":") for line in text.splitlines() if line[:1].strip())
        yield {key: value.strip() for key, _, value in fields}


def _properties(**values: str) -> Iterable[Property]:
    return [Property(name=f"{PROPERTY}:{name}", value=value) for name, value in values.items() if value]
