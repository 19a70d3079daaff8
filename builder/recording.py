"""Write a base's facts into their file: what was published and holds stays as it stands, with its comments."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml
from packaging.utils import canonicalize_name

from builder import vocabulary as v
from builder.facts import Facts, Python

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WIDTH = 118
EDITORS = "# yaml-language-server: $schema=../../schema/base.schema.json"
ITSELF = "the image itself"  # where a fact comes from that no publication has told, or that one got wrong
KINDS = ("digest", "distributions", "env", "python", *("device_code", "rocm_root", "entrypoint", "tools", "pip_check"))
_KEY = re.compile(r"(?P<key>[a-z_]+):")
_ENTRY = re.compile(r"  (?P<name>[^\s:#]+):(?: |$)")


def merged(known: Facts | None, found: Facts, contradicted: Iterable[tuple[str, ...]]) -> Facts:
    """What the image says; where it does not tell, what was published. Names stay spelt as they were."""
    values: dict[str, Any] = {key: getattr(found, key) for key in Facts.model_fields}
    wrong = {key[0] for key in contradicted}
    if wrong & {"image", "digest"}:  # what was published is of another image
        known = None
    cited = dict(known.sources) if known else {}
    if known:
        for key, value in values.items():
            # Of its size, each store has another opinion.
            if value in (None, v.UNKNOWN) or (key == "size_gb" and known.size_gb is not None):
                values[key] = getattr(known, key)
        spelt = {canonicalize_name(name): name for name in known.distributions}
        for key in ("distributions", "flavours", "requirements"):
            values[key] = values[key] and {spelt.get(name, name): value for name, value in values[key].items()}
    if values["size_gb"] != (known and known.size_gb):
        cited["size_gb"] = ITSELF
    told = {key for key in KINDS if getattr(found, key) not in (None, v.UNKNOWN)}
    cited |= {key: ITSELF for key in told if key not in cited or key in wrong}
    values["sources"] = dict(sorted(cited.items()))
    return Facts(**values)


def text(name: str, facts: Facts, known: Facts | None, old: str) -> str:
    """The file of facts; the same text again where nothing differs.

    Args:
        name: the file's, without its ending.
        known: what `old` says.
        old: the file as it stands, empty where there is none.
    """
    blocks = _blocks(old)
    lines = []
    for key in Facts.model_fields:
        value = getattr(facts, key)
        if value is None or (value == () and key == "env_unknown"):
            continue
        before = getattr(known, key) if known else None
        lead, body = blocks.get(key, ([""], []))
        if body and value == before:
            lines += [*lead, *body]
        else:
            lines += [*([""] if lines and (lead[:1] == [""] or not body) else []), *_block(key, value, before, body)]
    itself = f"read from it by `python -m builder facts {name}`"
    header = f"# Facts of {facts.image}, {itself}; what is cited in `sources` was found so."
    if lines[0] == EDITORS:
        lines = lines[1:]
    if lines[0].startswith("#"):
        lines = lines[1:]
    return "\n".join([EDITORS, header, *lines]) + "\n"


def difference(path: str, old: str, new: str) -> list[str]:
    """What changes in the file, as a unified diff."""
    names = (path if old else "/dev/null", path)
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="", n=1))


def _blocks(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """By key of the top level: the comments and empty lines that lead to it, and its lines."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    lead: list[str] = []
    body: list[str] = []
    for line in text.splitlines():
        if match := _KEY.match(line):
            body = [line]
            found[match["key"]] = (lead, body)
            lead = []
        elif body and line.startswith(" "):
            body += [*lead, line]
            lead = []
        else:
            lead.append(line)
    return found


def _block(key: str, value: object, before: object, body: list[str]) -> Iterator[str]:
    """The lines of a key; of a mapping, entries that stay the same are as they stood."""
    entries = _entries(value)
    if entries is None:
        yield from _folded(f"{key}:", value)
        return
    yield f"{key}:"
    earlier, stood = _entries(before) or {}, _stood(body[1:])
    for name, entry in entries.items():
        if name in stood and earlier.get(name) == entry:
            yield from stood[name]
        else:
            yield from _folded(f"  {scalar(name)}:", entry)


def _entries(value: object) -> Mapping[str, object] | None:
    if isinstance(value, Python):
        return value.model_dump()
    return value if isinstance(value, Mapping) and value else None


def _stood(lines: list[str]) -> dict[str, list[str]]:
    """By entry of a mapping: its lines, with the comments before them."""
    found: dict[str, list[str]] = {}
    pending: list[str] = []
    into = pending
    for line in lines:
        if match := _ENTRY.match(line):
            into = found[match["name"].strip("'\"")] = [*pending, line]
            pending = []
        elif line.lstrip().startswith("#") or not line.strip():
            pending.append(line)
        else:
            into.append(line)
    return found


def _folded(title: str, value: object) -> Iterator[str]:
    """A key and its value; a list that is too long for one line goes on below, indented."""
    line = f"{title} {written(value)}"
    if len(line) <= WIDTH or not isinstance(value, tuple):
        yield line
        return
    indent = " " * (len(title) - len(title.lstrip()) + 2)
    line = f"{title} ["
    for number, item in enumerate(value):
        word = scalar(item) + ("]" if number == len(value) - 1 else ",")
        if len(line) + len(word) >= WIDTH:
            yield line.rstrip()
            line = indent
        line += f"{word} "
    yield line.rstrip()


def written(value: object) -> str:
    """A value as YAML has it on one line."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(name)}: {written(entry)}" for name, entry in value.items()) + "}"
    assert isinstance(value, tuple)  # noqa: S101 (all that facts hold)
    return f"[{', '.join(map(scalar, value))}]"


def scalar(text: str) -> str:
    """A text as YAML reads it back: plain where every reader takes it for a text, else quoted."""
    plain = bool(text) and text.isprintable() and not set(text) & set(",[]{}\"'#&*!|>%@`")
    try:
        same = plain and yaml.safe_load(f"- {text}") == [text]
    except yaml.YAMLError:
        same = False
    return text if same else json.dumps(text, ensure_ascii=False)
