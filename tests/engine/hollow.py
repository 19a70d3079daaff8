"""Images of the real Dockerfile whose steps do nothing: instructions, files and labels as ours have them, in seconds."""

from __future__ import annotations

import io
import json
import secrets
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conftest import FACTS, MANIFEST, libraries

from builder import buildkit, manifest, render
from builder.engine import Engine
from builder.facts import Facts
from builder.lists import HOME
from builder.manifest import Manifest
from builder.report import Check, Outcome, Report

CHECKS = [
    {"name": "torch is a ROCm build", "kind": "torch_rocm", "outcome": "passed"},
    {"name": "the seal holds, every sealed file re-hashed", "kind": "seal", "outcome": "passed"},
    {"name": "vime imports", "kind": "import", "outcome": "could not run"},
]
PLAN = [{"name": "numpy", "version": "1.26.4", "sha256": "a" * 64, "chain": "vllm: numpy", "url": "numpy.whl"}]
DPKG = """Package: libc6
Status: install ok installed
Maintainer: Somebody <somebody@example.org>
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u9
Description: GNU C Library

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

"""


def report(image_id: str, outcome: Outcome) -> Report:
    """What the verification of an image came to, of one check."""
    check = Check(name="torch imports", kind="import", outcome=outcome, detail="", hint="", seconds=0.1)
    return Report(
        image="rocm7.14",
        image_id=image_id,
        tag=None,
        gpu_targets=("gfx942",),
        pins="as manifest",
        arguments={},
        checks=(check,),
    )


def written(of: Manifest = MANIFEST) -> dict[str, str]:
    """The files that the steps would have left, by path."""
    records = {
        name: {
            "name": name,
            "distribution": source.distribution,
            "repository": source.repository,
            "tag": source.tag,
            "commit": source.commit,
        }
        for name, source in of.sources.items()
    }
    content: dict[str, Any] = {f"sources/{name}.json": record for name, record in records.items()}
    content["plans/VLLM_REQUIREMENTS.json"] = {"schema": 1, "step": "VLLM_REQUIREMENTS", "distributions": PLAN}
    content["verification.json"] = {"schema": 1, "checks": CHECKS}
    content["seal.json"] = {"schema": 1, "distributions": {"torch": {"version": "2.12.0+rocm7.14.0", "step": "base"}}}
    files = {f"{HOME}/{name}": json.dumps(value) for name, value in content.items()}
    return {**files, "/var/lib/dpkg/status": DPKG}


def edited(*edits: tuple[str, str]) -> Manifest:
    """The manifest with the edits made, each at its first place in the files that it is made of."""
    texts = {path: path.read_text("utf-8") for path in MANIFEST.files}
    for old, new in edits:
        path = next(path for path, text in texts.items() if old in text)
        texts[path] = texts[path].replace(old, new, 1)
    files = {path: text.encode() for path, text in texts.items()}
    return manifest.parse(files[MANIFEST.path], MANIFEST.path, files)


def base(engine: Engine, files: Mapping[str, str], *changes: str) -> str:
    """A base in which bash does nothing, with those files and instructions; its reference."""
    reference = f"vime-images-test/hollow:{secrets.token_hex(4)}"
    body = io.BytesIO()
    nothing = Path(shutil.which("true") or "/bin/true").resolve()
    with tarfile.open(fileobj=body, mode="w") as archive:
        for name in ("bash", "sh", "timeout", "true"):
            archive.add(nothing, f"bin/{name}")
        for library in libraries(str(nothing)):
            archive.add(Path(library).resolve(), library.lstrip("/"))
        for path, text in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    body.seek(0)
    engine.import_root(body, reference, ["ENV PATH=/bin", *changes])
    return reference


def image(
    engine: Engine,
    of: Manifest = MANIFEST,
    facts: Facts = FACTS,
    *,
    files: Mapping[str, str] | None = None,
    arguments: Mapping[str, str] | None = None,
) -> str:
    """An image of a manifest's Dockerfile; its tag."""
    reference = base(engine, written(of) if files is None else files)
    given = {"BASE_IMAGE": reference, **(arguments or {})}
    text = render.render(of, facts)
    built = buildkit.build(engine, text, arguments=given, watch=lambda _: None, network="none")
    tag = f"vime-images-test/{secrets.token_hex(4)}:hollow"
    engine.tag(built.image_id, tag)
    return tag
