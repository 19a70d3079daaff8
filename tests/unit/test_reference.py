"""Reference pages and schemas are what the models say, and every manifest is what its schema says."""

from __future__ import annotations

import inspect
import json
import typing

import jsonschema  # type: ignore[import-untyped]
import pydantic
import pytest
import reference
import yaml
from manifests import IMAGES, ROOT

FILES = {
    **dict.fromkeys([*IMAGES, *sorted((ROOT / "images/shared").glob("*.yaml"))], "image"),
    **dict.fromkeys(sorted((ROOT / "images/bases").glob("*.yaml")), "base"),
}


@pytest.mark.parametrize("name", reference.FILES)
def test_what_is_made_of_the_models_is_fresh(request: pytest.FixtureRequest, name: str) -> None:
    text = reference.FILES[name]()
    if request.config.getoption("--update-golden"):
        (ROOT / name).write_text(text, encoding="utf-8")
    assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name} is stale: make reference"


def test_every_key_is_described_and_nothing_else_is() -> None:
    own = {model.__name__: set(inspect.get_annotations(model)) for model in reference.MODELS}
    written = {name: set(keys) for name, keys in reference.KEYS.items()}
    assert written == {name: {key for key in keys if not key.startswith("_")} for name, keys in own.items()}


@pytest.mark.parametrize("model", reference.MODELS, ids=lambda model: model.__name__)
def test_every_example_is_one_that_its_key_accepts(model: type[pydantic.BaseModel]) -> None:
    text = yaml.load((ROOT / "schema/keys.yaml").read_text("utf-8"), yaml.BaseLoader)  # noqa: S506 (ours; scalars stay text)
    for key, field in model.model_fields.items():
        if key in text[model.__name__]:
            kind: typing.Any = field.rebuild_annotation()
            pydantic.TypeAdapter(kind).validate_json(json.dumps(text[model.__name__][key][1]), strict=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_editor_finds_no_fault_in_a_file_and_finds_a_misspelt_key(path: typing.Any) -> None:
    head, _, rest = path.read_text("utf-8").partition("\n")
    mark = "# yaml-language-server: $schema="
    assert head.startswith(mark)
    assert (path.parent / head.removeprefix(mark)).resolve() == ROOT / f"schema/{FILES[path]}.schema.json"
    validator = jsonschema.Draft202012Validator(
        json.loads((ROOT / f"schema/{FILES[path]}.schema.json").read_text("utf-8"))
    )
    written = yaml.safe_load(rest)
    assert [error.message for error in validator.iter_errors(written)] == []
    assert list(validator.iter_errors(written | {"sumary": "x"}))
