"""Small images with the files and the labels of ours, and a real Python with pip in them."""

from __future__ import annotations

import io
import secrets
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import hollow
from conftest import MANIFEST, libraries, root_archive

from builder import buildkit, lists
from builder.engine import Engine

SITE = "/site"
LEFT_OUT = {"test", "tests", "idlelib", "ensurepip", "lib2to3", "turtledemo", "__pycache__", "site-packages"}
INSTALLED = {
    "torch": "2.12.0+rocm7.14.0",
    "numpy": "1.26.4",
    "vllm": "0.29.0",
    "stranger": "1.0",
    "ninja": str(MANIFEST.build_tools["ninja"].version).removeprefix("=="),
}


def slim(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = set(entry.name.split("/"))
    return None if parts & LEFT_OUT or any(part.startswith("config-") for part in parts) else entry


def with_python(installed: Mapping[str, str]) -> io.BytesIO:
    """The root of the tests with this interpreter, pip, and metadata of some distributions."""
    body = root_archive()
    python = Path(sys.executable).resolve()
    stdlib = Path(sysconfig.get_path("stdlib"))
    with tarfile.open(fileobj=body, mode="a") as archive:
        archive.add(python, "bin/python3")
        there = {f"/{name}" for name in archive.getnames()}
        programs = [python, *(stdlib / "lib-dynload").glob("*.so")]
        for library in sorted(set().union(*(libraries(str(program)) for program in programs)) - there):
            archive.add(Path(library).resolve(), library.lstrip("/"))
        archive.add(stdlib, f"usr/lib/{stdlib.name}", filter=slim)
        pip = metadata.distribution("pip")
        for folder in ("pip", f"pip-{pip.version}.dist-info"):
            archive.add(str(pip.locate_file(folder)), f"{SITE[1:]}/{folder}", filter=slim)
        for name, version in installed.items():
            needs = "Requires-Dist: numpy<2\n" if name == "vllm" else ""
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode()
            entry = tarfile.TarInfo(f"{SITE[1:]}/{name}-{version}.dist-info/METADATA")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    body.seek(0)
    return body


def image(engine: Engine, context: Path, installed: Mapping[str, str] = INSTALLED) -> str:
    """An image with those distributions; its tag.

    Args:
        context: an empty folder.
    """
    root = f"vime-images-test/python:{secrets.token_hex(4)}"
    variables = ["PATH=/bin", "PYTHONHOME=/usr", f"PYTHONPATH={SITE}", "LANG=C.UTF-8"]
    engine.import_root(with_python(installed), root, [f"ENV {variable}" for variable in variables])
    carried = {f"{lists.HOME}/manifest.json": lists.text(lists.content(MANIFEST))}
    for path, text in {**hollow.written(), **carried}.items():
        file = context / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    text = f"FROM {root}\nCOPY . /\nLABEL vime-image.image={MANIFEST.name} vime-image.gpu_targets=gfx942\n"
    built = buildkit.build(engine, text, arguments={}, watch=lambda _: None, context=context, network="none")
    tag = f"vime-images-test/{secrets.token_hex(4)}:python"
    engine.tag(built.image_id, tag)
    return tag
