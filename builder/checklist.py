"""The list of checks that an image has to pass, derived from its manifest; none is written there by hand."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from builder.lists import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.entries import Source
    from builder.facts import Facts
    from builder.lists import Entry
    from builder.manifest import Manifest


def wanted(manifest: Manifest, facts: Facts, *, finished: bool = False, tests: bool = False) -> Entry:
    """The one list of checks; it runs in the build, after it, and on a GPU host.

    Args:
        finished: with what only a finished image has, its configuration.
        tests: with the sources' own tests.
    """
    return {
        "schema": SCHEMA,
        "image": manifest.name,
        "python": facts.python.executable,
        "checks": [
            *_of_the_base(),
            *_of_the_sources(manifest),
            *_of_the_whole(manifest),
            *_proofs(manifest),
            *(_of_a_finished(manifest) if finished else ()),
            *(_tests(manifest) if tests else ()),
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
        key, kept = f"sources.{source.name}", source.recipe == "editable"
        yield from _as_pinned(source, key)
        yield from _imports(source.modules, f"{key}.modules", source.checkout if kept else None)
        if not kept:
            yield _loads(source.distribution, key)
        yield from _windows(manifest, source)
    for name, wheel in manifest.prebuilt.items():
        yield from _imports(wheel.modules, f"prebuilt.{name}.modules", None)
        yield _loads(name, f"prebuilt.{name}")


def _as_pinned(source: Source, key: str) -> Iterator[Entry]:
    """That what is installed was made of the pinned tree, for the wanted GPUs."""
    shipped, name = source.recipe == "shipped", source.distribution
    if not shipped:
        yield {
            "name": f"{source.name} is what its record says",
            "kind": "source",
            "source": source.name,
            "hint": f"{key}: something wrote into {source.checkout} after it was fetched and patched",
        }
    if source.public_version:
        built = f"another {name} was installed over the one that was built"
        yield {
            "name": f"{name} has the version of its tag",
            "kind": "version",
            "distribution": name,
            "tag": source.tag,
            "hint": f"{key}.tag: {f'the base ships another {name}' if shipped else built}",
        }
    if source.device_code:
        remedy = "the base has none for it" if shipped else "build for the target, with --gpu-target"
        yield {
            "name": f"{source.name} has device code for every GPU target",
            "kind": "device_code",
            "distribution": name,
            "modules": list(source.device_code),
            "hint": f"{key}.device_code: {remedy}",
        }


def _imports(modules: Sequence[str], key: str, under: str | None) -> Iterator[Entry]:
    for module in modules:
        yield {"name": f"{module} imports", "kind": "import", "module": module, "under": under, "hint": key}


def _loads(distribution: str, key: str) -> Entry:
    return {
        "name": f"the compiled modules of {distribution} load",
        "kind": "loads",
        "distribution": distribution,
        "hint": f"{key}: what they link to is not what they were built with",
    }


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
    yield _one_copy(manifest)
    if manifest.env:
        yield {
            "name": "every variable is one that its program reads",
            "kind": "env_read",
            "variables": list(manifest.env),
            "hint": "env: the installed version reads another name, or none",
        }
    yield from _of_names(manifest)


def _one_copy(manifest: Manifest) -> Entry:
    wheels = manifest.installed_by("wheel", "shipped")
    return {
        "name": "one process has one copy of each of ROCm's libraries",
        "kind": "one_copy",
        "modules": ["amdsmi", "torch", *(module for source in wheels for module in source.modules)],
        "distributions": [source.distribution for source in wheels],
        "libraries": ["libamd_smi", "libamdhip64"],
        "hint": "of a second copy: forbid the distribution that brings it, or make it a link in `links`",
    }


def _of_names(manifest: Manifest) -> Iterator[Entry]:
    """What is not there, and which variables Python sees."""
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


def _proofs(manifest: Manifest) -> Iterator[Entry]:
    """A patch of this project may have a program of its name beside it that proves it where it is installed."""
    for source in manifest.sources.values():
        for patch in source.patches:
            proof = (manifest.path.parent.parent / patch.path).with_suffix(".py")
            if patch.source is None and proof.is_file():
                yield {
                    "name": f"{source.name} does what {PurePosixPath(patch.path).name} is for",
                    "kind": "proof",
                    "program": proof.read_text(encoding="utf-8"),
                    "hint": f"sources.{source.name}.patches: {patch.path} does not fit the pinned commit",
                }


def _tests(manifest: Manifest) -> Iterator[Entry]:
    for source in manifest.sources.values():
        for path in source.tests:
            yield {
                "name": f"{source.name}'s own {path} passes",
                "kind": "tests",
                "source": source.name,
                "file": path,
                "hint": f"sources.{source.name}.commit or its patches: the test fails on what is installed",
            }
