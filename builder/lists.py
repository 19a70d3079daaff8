"""The two lists that an image carries, derived from its manifest: the judge's policy and the checks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builder.facts import Facts
    from builder.manifest import Manifest, Patch, Source

HOME = "/opt/vime-image"
# Cache mounts by name: where a step sees them. Logs that BuildKit would clip go to one too: it outlives a step that
# fails, and is in no image.
CACHES = {"ccache": "/root/.cache/ccache", "logs": "/root/.cache/vime-image-logs", "pip": "/root/.cache/pip"}
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
        "steps": {
            source.step("REQUIREMENTS"): _requirements(source)
            for source in manifest.sources.values()
            if source.requirements
        },
        "forbidden": {
            name: {"reason": forbidden.reason, "where": f"forbidden.{name}"}
            for name, forbidden in manifest.forbidden.items()
        },
        "constraints": {
            name: {"version": constraint.version, "where": f"constraints.{name}"}
            for name, constraint in manifest.constraints.items()
        },
        "overrides": {
            name: {"version": override.version, "where": f"overrides.{name}"}
            for name, override in manifest.overrides.items()
        },
        "provided": {
            source.distribution: {"source": source.name, "where": f"sources.{source.name}"}
            for source in manifest.sources.values()
        },
        "source_builds": [],
    }


def requirement_folder(source: Source) -> str:
    """Where a source's requirement files stand in the image once it is installed."""
    assert source.requirements is not None  # noqa: S101 - the caller has asked
    if source.recipe == "wheel":  # its tree does not stay
        return f"{HOME}/requirements/{source.name}"
    return str(PurePosixPath(source.checkout) / PurePosixPath(source.requirements.file).parent)


def patch_path(manifest: Manifest, source: Source, patch: Patch) -> str:
    """Where a patch stands in the image: in the tree that brings it, or where this project's are written."""
    if patch.source:
        return f"{manifest.sources[patch.source].checkout}/{patch.path}"
    return f"{HOME}/patches/{source.name}/{PurePosixPath(patch.path).name}"


def _requirements(source: Source) -> Entry:
    requirements = source.requirements
    assert requirements is not None  # noqa: S101 - the caller has asked
    return {
        "file": f"{requirement_folder(source)}/{PurePosixPath(requirements.file).name}",
        "without": list(requirements.without),
        "add": [f"{name}{added.version}" for name, added in requirements.add.items()],
        "where": f"sources.{source.name}.requirements",
    }


def checks(manifest: Manifest, facts: Facts, *, finished: bool = False) -> Entry:
    """The one list of checks; it runs in the build, after it, and on a GPU host.

    Args:
        finished: with what only a finished image has, its configuration.
    """
    return {
        "schema": SCHEMA,
        "image": manifest.name,
        "python": facts.python.executable,
        "checks": [
            *_of_the_base(),
            *_of_the_sources(manifest),
            *_of_the_whole(manifest),
            *(_of_a_finished(manifest) if finished else ()),
        ],
    }


def _of_the_base() -> Iterator[Entry]:
    yield {
        "name": "torch is a ROCm build",
        "kind": "torch_rocm",
        "hint": "a step has replaced the base's torch: see the first step whose seal check failed",
    }
    yield {
        "name": "the seal holds, every sealed file re-hashed",
        "kind": "seal",
        "hint": "forbid what replaced it, or take it out of the requirement set that asked for it",
    }
    yield {
        "name": "every sealed module has one owner",
        "kind": "owners",
        "hint": "add the second owner to `forbidden`",
    }
    yield {
        "name": "torch_shm_manager can be executed",
        "kind": "executable",
        "distribution": "torch",
        "file": "torch/bin/torch_shm_manager",
        "hint": "the base's torch lost the permission on its way into a wheel: name it in `executables`",
    }


def _of_the_sources(manifest: Manifest) -> Iterator[Entry]:
    for source in manifest.sources.values():
        key = f"sources.{source.name}"
        yield {
            "name": f"{source.name} is what its record says",
            "kind": "source",
            "source": source.name,
            "hint": f"{key}: something wrote into {source.checkout} after it was fetched and patched",
        }
        if source.tag:
            yield {
                "name": f"{source.distribution} has the version of its tag",
                "kind": "version",
                "source": source.name,
                "hint": f"{key}.tag: another {source.distribution} was installed over the one that was built",
            }
        if source.device_code:
            yield {
                "name": f"{source.name} has device code for every GPU target",
                "kind": "device_code",
                "source": source.name,
                "modules": list(source.device_code),
                "hint": f"{key}.device_code: build for the target, with --gpu-target",
            }
        for module in source.modules:
            yield {
                "name": f"{module} imports",
                "kind": "import",
                "module": module,
                "under": source.checkout if source.recipe == "editable" else None,
                "hint": f"{key}.modules",
            }
        if source.recipe == "wheel":
            yield {
                "name": f"the compiled modules of {source.distribution} load",
                "kind": "loads",
                "source": source.name,
                "hint": f"{key}: what they link to is not what they were built with",
            }
        yield from _windows(manifest, source)


def _windows(manifest: Manifest, source: Source) -> Iterator[Entry]:
    key = f"sources.{source.name}"
    # A patch that another source brings may import from there.
    by_patches = [patch.source for patch in source.patches if patch.source]
    providers = list(dict.fromkeys([*source.imports_from, *by_patches]))
    for provider in providers:
        yield {
            "name": f"{provider} has every name that {source.name} imports from it",
            "kind": "api_window",
            "consumer": source.name,
            "folders": list(source.packages),
            "provider": provider,
            "packages": list(manifest.sources[provider].packages),
            "unused": {pattern: unused.reason for pattern, unused in source.unused.items()},
            "last": provider == providers[-1],
            "hint": f"change {key}.commit or sources.{provider}.commit, or waive the file in {key}.unused",
        }


def _of_the_whole(manifest: Manifest) -> Iterator[Entry]:
    yield {
        "name": "pip check shows nothing new",
        "kind": "pip_check",
        "waived": {
            distribution: {requirement: waiver.reason for requirement, waiver in waivers.items()}
            for distribution, waivers in manifest.pip_check.items()
        },
        "hint": "install what is missing, or waive it with a reason in pip_check",
    }
    yield {
        "name": "whatever compiled needs numpy imports with the one installed",
        "kind": "numpy_users",
        "hint": "constraints.numpy: hold the distribution back with a constraint of its own",
    }
    wheels = [source for source in manifest.sources.values() if source.recipe == "wheel"]
    yield {
        "name": "one process has one copy of each of ROCm's libraries",
        "kind": "one_copy",
        "modules": ["amdsmi", "torch", *(module for source in wheels for module in source.modules)],
        "sources": [source.name for source in wheels],
        "libraries": ["libamd_smi", "libamdhip64"],
        "hint": "of a second copy: forbid the distribution that brings it, or make it a link in `links`",
    }
    if manifest.env:
        yield {
            "name": "every variable is one that its program reads",
            "kind": "env_read",
            "variables": list(manifest.env),
            "hint": "env: the installed version reads another name, or none",
        }
    for name in _taken_out(manifest):
        yield {
            "name": f"{name} is absent",
            "kind": "absent",
            "distribution": name,
            "hint": f"{name} came back: forbid it, or take it out of the set that asks for it",
        }
    for variable, wanted in _environment(manifest):
        yield {
            "name": f"Python sees {variable} {'absent' if wanted is None else 'as declared'}",
            "kind": "env",
            "variable": variable,
            "value": wanted,
            "hint": f"{'forbidden_env or dropped_env' if wanted is None else 'env'}.{variable}",
        }


def _of_a_finished(manifest: Manifest) -> Iterator[Entry]:
    for title, key, value, file in (
        ("starts in its working directory", "WorkingDir", manifest.workdir, None),
        ("starts with its entry point", "Entrypoint", list(manifest.entrypoint), None),
        ("names the GPU targets that it was built for", "gpu_targets", None, "gpu_targets"),
    ):
        yield {
            "name": f"the image {title}",
            "kind": "config",
            "key": key,
            "value": value,
            "file": file,
            "hint": "the image was made from another Dockerfile, or changed after it was built",
        }


def _taken_out(manifest: Manifest) -> list[str]:
    """Distributions that a requirement set leaves out, and that no set brings in another way."""
    without = {
        name for source in manifest.sources.values() if source.requirements for name in source.requirements.without
    }
    return sorted(without)


def _environment(manifest: Manifest) -> Iterator[tuple[str, str | None]]:
    for name, variable in manifest.env.items():
        yield name, variable.value
    for name in [*manifest.dropped_env, *manifest.forbidden_env]:
        yield name, None


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
