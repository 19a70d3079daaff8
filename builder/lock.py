"""A lock: every version that a verified image has installed, and the manifest that this holds for."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from builder import located_yaml
from builder.errors import Location, ManifestError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Keys of a manifest, and of its entries, that choose no version; decision 012 has the reasons.
BESIDE = frozenset(
    {
        *("summary", "extends", "needs", "gpu_targets", "workdir", "entrypoint", "links", "executables"),
        *("env", "dropped_env", "forbidden_env", "forbidden", "ignored_pip_options", "installer", "pip_check"),
    }
)
BESIDE_IN_ENTRIES = frozenset(
    {
        *("reason", "image", "facts", "repository", "modules", "build_env", "device_code"),
        *("imports_from", "tests", "unused"),
    }
)
_HEAD = """\
# Every version that a verified image of {title} has installed; `python -m builder lock {name}` writes it.
# manifest {digest}
"""
_DIGEST = re.compile(r"# manifest (sha256:[0-9a-f]{64})")
_LINE = re.compile(r"(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)==(?P<version>[\w.!+]+)", re.ASCII)


class Lock(NamedTuple):
    """Versions by distribution, and the digest of the manifest that they hold for."""

    manifest: str
    versions: Mapping[str, str]

    def text(self, name: str) -> str:
        """The lock of the image `name`, as its file has it; pip reads that as constraints."""
        head = _HEAD.format(title=f"images/{name}.yaml", name=name, digest=self.manifest)
        return head + "".join(f"{one}=={self.versions[one]}\n" for one in sorted(self.versions))


def digest(content: Mapping[str, Any]) -> str:
    """Of a manifest as an image carries it: what decides which versions are installed."""
    kept = {key: value for key, value in content.items() if key not in {*BESIDE, "base", "schema", "image"}}
    entries = {key: {name: _entry(entry) for name, entry in named.items()} for key, named in kept.items()}
    order = list(content["sources"])  # each set is planned after those before it
    decisive = json.dumps([order, _entry(content["base"]), entries], sort_keys=True)
    return f"sha256:{hashlib.sha256(decisive.encode()).hexdigest()}"


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in entry.items() if key not in BESIDE_IN_ENTRIES}
    for key, value in kept.get("requirements", {}).items():
        named = {name: _entry(inner) for name, inner in value.items()} if isinstance(value, dict) else value
        kept["requirements"] = {**kept["requirements"], key: named}
    return kept


def read(path: Path) -> Lock | None:
    """The lock at `path`; None where there is none.

    Raises:
        ManifestError: with each line that is none of a lock.
    """
    if not path.exists():
        return None
    try:
        lines = located_yaml.content(path).decode().splitlines()
    except UnicodeDecodeError as error:
        problem = Problem(f"no UTF-8 text: {error.reason}", Location(path, 1), f"python -m builder lock {path.stem}")
        raise ManifestError(problem) from None
    found = [digest[1] for line in lines if (digest := _DIGEST.fullmatch(line))]
    faults = list(_faults(path, lines))
    if len(found) != 1:
        message = f"{len(found) or 'no'} lines `# manifest sha256:...`: a lock is of one manifest"
        faults.insert(0, Problem(message, Location(path, 1), hint=f"python -m builder lock {path.stem}"))
    if faults:
        raise ManifestError(*faults)
    pairs = [line.partition("==") for line in lines if not line.startswith("#")]
    return Lock(found[0], {name: version for name, _, version in pairs})


def is_line(text: str) -> bool:
    """Whether a lock may say that."""
    return _LINE.fullmatch(text) is not None


def _faults(path: Path, lines: list[str]) -> Iterator[Problem]:
    seen = set[str]()
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            continue
        entry = _LINE.fullmatch(line)
        if entry is None:
            hint = "a line is name==version, the name in lower case with dashes"
            yield Problem(f"{line!r} is no line of a lock", Location(path, number), hint)
        elif entry["name"] in seen:
            yield Problem(f"{entry['name']} is written twice", Location(path, number), "keep one")
        else:
            seen.add(entry["name"])
