"""What each layer of an image holds, and what of it no run needs: what a later step removes weighs all the same."""

from __future__ import annotations

import json
import re
import tarfile
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from builder import drift, lists
from builder.connection import answering
from builder.errors import EngineError, Problem
from builder.report import FAILED, PASSED, Check
from builder.units import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from builder.engine import Engine

REPLACED = "replaced or removed by a later step"
AGAIN = 0.01  # of what our layers hold: so much may be there again in a later one, as the seal is after each source
SHOWN = 3  # paths that a line names
_OURS = f"{lists.HOME}/bin/"  # the first instruction that has it begins what is ours
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"  # how a layer says that a path, or all in a folder, is gone


class Kind(NamedTuple):
    """A kind of leftover: which paths are of it, and what to do."""

    what: str
    paths: re.Pattern[str]
    remedy: str


_INSTALLED = "(?!.*/(?:site|dist)-packages/)"  # what a wheel has brought is no leftover of ours
KINDS = (
    Kind(
        "a cache",
        re.compile(r"(root|home/[^/]+)/\.(cache|ccache|cargo|npm)/|var/cache/apt/"),
        "give the step a cache mount there",
    ),
    Kind("temporary files", re.compile(r"(var/)?tmp/"), "remove them in the step, or give it a tmpfs there"),
    Kind("apt's lists", re.compile(r"var/lib/apt/lists/"), "remove them in the step that has fetched them"),
    Kind(
        "a log",
        re.compile(rf"var/log/|{_INSTALLED}.*\.log$"),
        "write it to the cache mount of logs, or remove it in the step",
    ),
    Kind(
        "a build tree",
        re.compile(
            rf"{_INSTALLED}.*(/CMakeFiles/|/CMakeCache\.txt$|/\.ninja_(log|deps)$|/build/(temp|lib|bdist)\.|/dist/[^/]+\.whl$|\.o$)"
        ),
        "remove it in the step that compiles",
    ),
    Kind("git's samples of hooks", re.compile(r".*\.git/hooks/[^/]+\.sample$"), "fetch with an empty template"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: the step that made it, its files and their bytes, and the paths that it takes away.

    Attributes:
        gone: a path that ends in a slash takes away what is in the folder, and not the folder.
    """

    step: str
    is_ours: bool
    files: Mapping[str, int]
    gone: frozenset[str]

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


class Waste(NamedTuple):
    """Files of one kind in one layer that no run needs."""

    step: str
    what: str
    paths: Mapping[str, int]
    remedy: str

    @property
    def bytes(self) -> int:
        return sum(self.paths.values())

    def __str__(self) -> str:
        largest = sorted(self.paths, key=lambda path: (-self.paths[path], path))[:SHOWN]
        more = f" and {len(self.paths) - SHOWN} more" if len(self.paths) > SHOWN else ""
        shown = ", ".join(f"/{path}" for path in largest)
        return f"{self.step}: {self.what}, {size(self.bytes)}: {shown}{more}; {self.remedy}"


def read(engine: Engine, image_id: str, dockerfile: str) -> list[Layer]:
    """The layers of an image, its base's first. The engine writes out the whole image for that.

    Args:
        dockerfile: as the image was rendered; it knows the steps' names.

    Raises:
        EngineError: where the engine failed, or its export cannot be read.
    """
    try:
        found, documents = _exported(engine, image_id)
        manifest = documents["manifest.json"][0]
        history = documents[manifest["Config"]]["history"]
        made_by = [str(entry.get("created_by", "")) for entry in history if not entry.get("empty_layer")]
        named = list(zip(made_by, manifest["Layers"], strict=True))
        begin = next((at for at, (instruction, _) in enumerate(named) if _OURS in instruction), len(named))
        names = drift.names(dockerfile)
        return [
            Layer(step=_step(instruction, names), is_ours=at >= begin, files=found[blob][0], gone=found[blob][1])
            for at, (instruction, blob) in enumerate(named)
        ]
    except (LookupError, RecursionError, TypeError, ValueError, tarfile.TarError) as error:
        raise EngineError(Problem(f"the engine's export of {image_id[:19]} cannot be read: {error!r}")) from error


def _exported(engine: Engine, image_id: str) -> tuple[dict[str, tuple[dict[str, int], frozenset[str]]], dict[str, Any]]:
    """What each layer holds and takes away, and the JSON beside the layers; both by their names in the export."""
    found, documents = dict[str, tuple[dict[str, int], frozenset[str]]](), dict[str, Any]()
    with answering("to export an image"):
        pieces = cast("IO[bytes]", _Pieces(engine.api.get_image(image_id)))
        with tarfile.open(fileobj=pieces, mode="r|") as archive:
            for entry in archive:
                blob: Any = archive.extractfile(entry) if entry.isfile() else None
                if blob is None or not entry.size:
                    continue
                begin = blob.peek(tarfile.BLOCKSIZE)
                is_layer = begin[257:262] == b"ustar"  # also one whose first file is called {
                if begin[:1] in {b"{", b"["} and not is_layer:
                    documents[entry.name] = json.load(blob)
                elif "/" in entry.name:
                    found[entry.name] = _entries(blob)
    return found, documents


class _Pieces:
    """What an engine sends, as a file that is read once."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._rest = iter(pieces), bytearray()

    def read(self, count: int) -> bytes:
        while len(self._rest) < count and (piece := next(self._pieces, b"")):
            self._rest += piece
        found = bytes(self._rest[:count])
        del self._rest[:count]
        return found


def _entries(blob: IO[bytes]) -> tuple[dict[str, int], frozenset[str]]:
    files, gone = dict[str, int](), set[str]()
    with tarfile.open(fileobj=blob, mode="r|*") as archive:
        for entry in archive:
            folder, slash, name = entry.name.removeprefix("./").rpartition("/")
            if name == _OPAQUE:
                gone.add(f"{folder}/")
            elif name.startswith(_WHITEOUT):
                gone.add(f"{folder}{slash}{name.removeprefix(_WHITEOUT)}")
            elif not entry.isdir():
                files[f"{folder}{slash}{name}"] = entry.size
    return files, frozenset(gone)


def _step(instruction: str, names: Mapping[str, str]) -> str:
    script = drift.script_of(instruction)
    if script is not None:
        first = (script.strip().splitlines() or [""])[0]
        return names.get(drift.plain(script)) or f"RUN {first[:60]}"
    copied = re.match(r"COPY <<(\w+) ", instruction)
    return copied[1] if copied else instruction[:60] or "the root of its base"


def waste(layers: Sequence[Layer]) -> list[Waste]:
    """What no run needs, by layer; of the base's, which no step can make lighter, nothing."""
    ours = [layer for layer in layers if layer.is_ours]
    found = [Waste(layer.step, kind.what, paths, kind.remedy) for layer in ours for kind, paths in _leftovers(layer)]
    for at, layer in enumerate(ours):
        again = dict(_again(layer, ours[at + 1 :]))
        if again:
            found.append(Waste(layer.step, REPLACED, again, "have it made once, in the step that makes it last"))
    return found


def _leftovers(layer: Layer) -> Iterator[tuple[Kind, dict[str, int]]]:
    for kind in KINDS:
        paths = {path: count for path, count in layer.files.items() if kind.paths.match(path)}
        if paths:
            yield kind, paths


def _again(layer: Layer, later: Sequence[Layer]) -> Iterator[tuple[str, int]]:
    written = set[str]().union(*(after.files for after in later))
    gone = set[str]().union(*(after.gone for after in later))
    for path, count in layer.files.items():
        parts = path.split("/")
        folders = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if path in written or path in gone or folders & gone or {f"{folder}/" for folder in folders} & gone:
            yield path, count


def check(engine: Engine, image_id: str, dockerfile: str) -> Check:
    """Whether every layer has only what a run needs."""
    started = time.monotonic()
    layers = read(engine, image_id, dockerfile)
    found = waste(layers)
    ours = sum(layer.bytes for layer in layers if layer.is_ours)
    again = [each for each in found if each.what == REPLACED]
    twice = sum(each.bytes for each in again)
    failed = [each for each in found if each.what != REPLACED] + (again if twice > AGAIN * ours else [])
    counted = f"{size(ours)} in {sum(layer.is_ours for layer in layers)} layers over those of the base"
    return Check(
        name="no layer has what no run needs",
        kind="layers",
        outcome=FAILED if failed else PASSED,
        detail="\n".join(map(str, failed)) or f"{counted}; {size(twice)} of it {REPLACED}",
        hint="change the step in templates/: what a later step removes weighs all the same",
        seconds=round(time.monotonic() - started, 3),
    )
