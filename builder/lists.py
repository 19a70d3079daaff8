"""Places in the image, and the lists that it carries: the judge's policy, and how a list is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from builder.distributions import canonical

if TYPE_CHECKING:
    from builder.entries import Patch, Source
    from builder.manifest import Manifest

HOME = "/opt/vime-image"
# Cache mounts by name: where a step sees them. Logs that BuildKit would clip go to one too: it outlives a step that
# fails, and is in no image.
CACHES = {
    "ccache": "/root/.cache/ccache",
    "logs": "/root/.cache/vime-image-logs",
    "pip": "/root/.cache/pip",
    "uv": "/root/.cache/uv",
}
CACHE = "vime-image-"  # begins the id of each: with the default, its place, strangers' steps would share it
SCHEMA = 1

Entry = dict[str, object]


def cache_mount(name: str) -> str:
    """A cache mount as it is written after `--mount=`."""
    return f"type=cache,id={CACHE}{name},target={CACHES[name]}"


def policy(manifest: Manifest) -> Entry:
    """What the judge in the image goes by; `where` is the manifest's key to change."""
    return {
        "schema": SCHEMA,
        "manifest": manifest.title,
        "steps": [source.step("REQUIREMENTS") for source in manifest.fetched if source.requirements],
        "sealed": {name: {"where": f"sealed.{name}"} for name in manifest.sealed},
        "forbidden": {
            name: {"reason": forbidden.reason, "where": f"forbidden.{name}"}
            for name, forbidden in manifest.forbidden.items()
        },
        "constraints": {
            name: {"version": constraint.version, "where": f"constraints.{name}"}
            for name, constraint in manifest.constraints.items()
        },
        "overrides": {
            name: {
                "version": override.version,
                "where": f"overrides.{name}",
                "waived": _waived(manifest, name),
            }
            for name, override in manifest.overrides.items()
        },
        "locked": _locked(manifest),
        "provided": {
            source.distribution: {"source": source.name, "where": f"sources.{source.name}"}
            for source in manifest.installed_by("wheel", "editable")
        },
        "source_builds": list(manifest.source_builds),
        "installer": {
            name: {"version": tool.version, "sha256": tool.sha256} for name, tool in manifest.installer.items()
        },
        "ignored_pip_options": list(manifest.ignored_pip_options),
    }


def content(manifest: Manifest) -> Entry:
    """The manifest as the image carries it: what is written there of the image, not of the machine that builds it."""
    written = manifest.model_dump(mode="json", exclude={"needs"}, exclude_defaults=True)
    return {"schema": SCHEMA, "image": manifest.name, **written}


def _locked(manifest: Manifest) -> dict[str, str]:
    """The versions that its lock adds to those that the manifest says itself."""
    said: dict[str, str] = {canonical(name): one.version for name, one in manifest.constraints.items()}
    said |= {canonical(name): f"=={one.version}" for name, one in manifest.overrides.items()}
    return {name: version for name, version in sorted(manifest.locked.items()) if said.get(name) != f"=={version}"}


def _waived(manifest: Manifest, name: str) -> dict[str, str]:
    """What an override may lack, with the manifest's key."""
    return {
        needed: f"pip_check.{written}.{needed}"
        for written, waivers in manifest.pip_check.items()
        if canonical(written) == canonical(name)
        for needed in waivers
    }


def requirement_folder(source: Source) -> str:
    """Where a source's requirement files stand in the image once it is installed."""
    assert source.requirements and source.requirements.file  # noqa: S101, PT018 - the caller has asked
    if source.recipe == "wheel":  # its tree does not stay
        return f"{HOME}/requirements/{source.name}"
    return str(PurePosixPath(source.checkout) / PurePosixPath(source.requirements.file).parent)


def patch_path(manifest: Manifest, source: Source, patch: Patch) -> str:
    """Where a patch stands in the image: in the tree that brings it, or where this project's are written."""
    if patch.source:
        return f"{manifest.sources[patch.source].checkout}/{patch.path}"
    return f"{HOME}/patches/{source.name}/{PurePosixPath(patch.path).name}"


def set_path(source: Source) -> str:
    """Where what the judge goes by for one set alone stands in the image: another set's does not depend on it."""
    return f"{HOME}/sets/{source.step('REQUIREMENTS')}.json"


def requirement_set(source: Source) -> Entry:
    """What the judge goes by for a source's requirements, beside the policy."""
    requirements = source.requirements
    assert requirements is not None  # noqa: S101 - the caller has asked
    return {
        "file": f"{requirement_folder(source)}/{PurePosixPath(requirements.file).name}" if requirements.file else None,
        "without": list(requirements.without),
        "add": [f"{name}{added.version}" for name, added in requirements.add.items()],
        "project": source.distribution,
        "where": f"sources.{source.name}.requirements",
    }


def text(entries: Mapping[str, object]) -> str:
    """JSON with one entry a line, so that a change of one is a one-line diff."""
    return "\n".join(_lines(entries)) + "\n"


def _lines(entries: Mapping[str, object]) -> Iterator[str]:
    yield "{"
    keys = list(entries)
    for key in keys:
        comma = "," if key != keys[-1] else ""
        value = entries[key]
        if isinstance(value, Mapping) and value:
            yield f" {json.dumps(key)}: {{"
            yield from _joined(f"  {json.dumps(name)}: {json.dumps(item)}" for name, item in value.items())
            yield f" }}{comma}"
        elif isinstance(value, Sequence) and not isinstance(value, str) and value:
            yield f" {json.dumps(key)}: ["
            yield from _joined(f"  {json.dumps(item)}" for item in value)
            yield f" ]{comma}"
        else:
            yield f" {json.dumps(key)}: {json.dumps(value)}{comma}"
    yield "}"


def _joined(lines: Iterator[str]) -> Iterator[str]:
    collected = list(lines)
    for line in collected[:-1]:
        yield f"{line},"
    yield collected[-1]
