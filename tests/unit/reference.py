"""What is made of the models and schema/keys.yaml: docs/manifest.md, docs/checks.md, and the schemas for editors."""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import yaml
from manifests import REAL, ROOT

from builder import checklist, entries, facts, manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from builder.schema import Written

KEYS = yaml.safe_load((ROOT / "schema/keys.yaml").read_text(encoding="utf-8"))
MODELS: tuple[type[Written], ...] = (
    *(manifest.Manifest, entries.Base, entries.Source, entries.Requirements, entries.Patch, entries.Prebuilt),
    *(entries.Reasoned, entries.Chosen, entries.Constraint, entries.Override, entries.BuildTool, entries.Link),
    *(entries.Variable, facts.Facts, facts.Python),
)
SCALAR = ["string", "number", "boolean"]  # the project reads scalars as the text that stands there; YAML does not
_MADE = "Made of the models and schema/keys.yaml by `make reference`; do not edit."


def told(model: type[Written], key: str) -> tuple[str, Any]:
    """What a key is for, and an example; a model inherits what its bases say."""
    owner = next(base for base in model.__mro__ if key in inspect.get_annotations(base))
    text, example = KEYS[owner.__name__][key]
    return text, example


def schema(model: type[Written], *, partial: bool) -> str:
    """The JSON Schema of a file.

    Args:
        partial: a file may be completed by another, so no key is missing from it.
    """
    whole = model.model_json_schema()
    by_name = {each.__name__: each for each in MODELS}
    for name, part in [(model.__name__, whole), *whole.get("$defs", {}).items()]:
        for key, value in part["properties"].items():
            text, example = told(by_name[name], key)
            value |= {"description": text, "examples": [example]}
    return json.dumps({"$comment": _MADE} | _plain(whole, partial=partial), indent=1) + "\n"


def _plain(node: Any, *, partial: bool) -> Any:
    if isinstance(node, list):
        return [_plain(each, partial=partial) for each in node]
    if not isinstance(node, dict):
        return node
    left = [each for each in node.get("anyOf", []) if each != {"type": "null"}]
    if "anyOf" in node and len(left) == 1:
        node = {key: value for key, value in node.items() if key != "anyOf"} | left[0]
    dropped = {"title", "default", *(["required"] if partial else [])}
    found: dict[str, Any] = {}
    for key, value in node.items():
        if key in {"properties", "$defs"}:
            found[key] = {name: _plain(each, partial=partial) for name, each in value.items()}
        elif key in {"examples", "enum"}:
            found[key] = value
        elif key not in dropped or not isinstance(value, str | list | dict | bool | None):
            found[key] = _plain(value, partial=partial)
    if found.get("type") == "string" and "enum" not in found and "const" not in found:
        found["type"] = SCALAR
    return found


def page() -> str:
    """Every key of a manifest and of a base's facts."""
    lines = ["# Keys", "", _MADE, ""]
    lines += ["`images/IMAGE.yaml` is a Manifest, `images/bases/BASE.yaml` is Facts; `images/shared/` has parts of a"]
    lines += ["Manifest. A scalar is the text that stands there: `7.10` never becomes 7.1. `unknown` is written where"]
    lines += ["nobody has established a value. Editors have all this from the schema that each file names in line 1."]
    for model in MODELS:
        doc = " ".join((model.__doc__ or "").partition("\n\n")[0].split())
        lines += ["", f"## {model.__name__}", "", doc, "", "| key | type | default | what it is | example |"]
        lines += ["| --- | --- | --- | --- | --- |", *_rows(model)]
    return "\n".join(lines) + "\n"


def _rows(model: type[Written]) -> Iterator[str]:
    for key, field in model.model_fields.items():
        text, example = told(model, key)
        raw = next(base.__annotations__[key] for base in model.__mro__ if key in inspect.get_annotations(base))
        default = "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
        yield f"| `{key}` | {_type(raw)} | {default} | {text} | `{_flow(example)}` |"


def _type(raw: str) -> str:
    """An annotation in words: Mapping[v.Distribution, Override] is `distribution: Override`."""
    text = re.sub(r"\bv\.(\w+)", lambda found: re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", found[1]).lower(), raw)
    text = re.sub(r"Annotated\[(.+), AtLeastOne\]", r"\1, at least one", text).replace(" | None", "")
    text = re.sub(r"tuple\[(.+?), \.\.\.\]", r"list of \1", text)
    text = re.sub(r"Literal\[([^]]+)\]", lambda found: found[1].replace('"', "").replace(", ", " or "), text)
    while "Mapping[" in text:
        text = re.sub(r"Mapping\[([^][,]+), ([^][]+)\]", r"\1: \2", text)
    return text


def _value(default: object) -> str:
    return "none" if default in (None, (), {}) else f"`{json.dumps(default)}`"


def _flow(example: Any) -> str:
    text = yaml.safe_dump(example, default_flow_style=True, width=1000, sort_keys=False)
    return text.replace("\n...", "").strip().replace("|", "\\|")


def checks() -> str:
    """Every kind of check, by the first of its kind in an image."""
    image = manifest.load(REAL)
    kinds: dict[str, dict[str, object]] = {}
    for check in checklist.wanted(image, facts.of(image, ROOT), finished=True, tests=True)["checks"]:  # type: ignore[attr-defined]
        kinds.setdefault(str(check["kind"]), check)
    lines = ["# Checks", "", "Made of `builder/checklist.py` by `make reference`; do not edit. The checks of an image"]
    lines += [
        f"follow from its manifest; these are the kinds of them, each by its first in {REAL.stem}. They run in the"
    ]
    lines += ["build, on the finished image, and by `python -m builder verify TAG`; `config` only on a finished image,"]
    lines += ["`tests` only with `verify --tests`.", "", "| kind | such as | when it fails |", "| --- | --- | --- |"]
    lines += [f"| `{kind}` | {check['name']} | {check['hint']} |" for kind, check in kinds.items()]
    return "\n".join(lines) + "\n"


FILES: dict[str, Callable[[], str]] = {
    "docs/checks.md": checks,
    "docs/manifest.md": page,
    "schema/base.schema.json": lambda: schema(facts.Facts, partial=False),
    "schema/image.schema.json": lambda: schema(manifest.Manifest, partial=True),
}
