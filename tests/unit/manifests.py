"""Every manifest that renders, with the facts of its base: the project's own, and those of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from builder import facts, manifest
from builder.render import render

if TYPE_CHECKING:
    from builder.facts import Facts
    from builder.manifest import Manifest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/manifests"
REAL = ROOT / "images/rocm7.14.yaml"
SECOND = ROOT / "images/rocm7.2.yaml"  # on a base that ships vLLM
GOOD = sorted((TESTS / "good").glob("*.yaml"))
IMAGES = sorted((ROOT / "images").glob("*.yaml"))
EVERY = [*IMAGES, *GOOD]


def facts_of(written: Manifest) -> Facts:
    """The facts of a base that a test made up, or else the project's."""
    made_up = (TESTS / facts.FOLDER / f"{written.base.facts}.yaml").is_file()
    return facts.of(written, TESTS if made_up else ROOT)


def rendered(path: Path) -> str:
    written = manifest.load(path)
    return render(written, facts_of(written))


def changed(path: Path, *edits: tuple[str, str]) -> Manifest:
    """The manifest at `path` as it would be with the edits made, each at its first place in one of its files."""
    texts = {file: file.read_text(encoding="utf-8") for file in manifest.load(path).files}
    for old, new in edits:
        file = next((file for file, text in texts.items() if old in text), path)
        assert old in texts[file]
        texts[file] = texts[file].replace(old, new, 1)
    files = {file: text.encode() for file, text in texts.items()}
    return manifest.parse(files[path], path, files)


def write(written: Manifest, root: Path) -> None:
    """The files of one of the project's manifests, at their places in a copy of the project."""
    for path, content in written.rewritten({}).items():
        (root / path.relative_to(ROOT)).write_bytes(content)
