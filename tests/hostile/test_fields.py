"""Any text in any field of a manifest is refused at its place, or is data in the Dockerfile and nothing else."""

from __future__ import annotations

import json

import fields
import inputs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builder import dockerfile, entries, lists, manifest, render, schema
from builder.errors import BuilderError, ManifestError, RenderError
from builder.manifest import Manifest

bounded = settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
MARK = "mark-of-the-place"


def line_of(spot: fields.Spot) -> int:
    lines = fields.written(fields.put(fields.VALUE, spot, MARK)).decode().split("\n")
    return next(number for number, line in enumerate(lines, 1) if MARK in line)


def shape(text: str) -> list[tuple[str, int]]:
    return [(step.keyword, len(step.heredocs)) for step in dockerfile.parse(text)]


def rendered(written: Manifest) -> str:
    return render.render(written, fields.FACTS)


USUAL = shape(rendered(fields.read(fields.VALUE)))


def test_no_field_of_a_model_is_left_out() -> None:
    found = [found for room in (entries, manifest) for found in vars(room).values()]
    named = {
        name
        for kind in found
        if isinstance(kind, type) and issubclass(kind, schema.Written)
        for name in kind.model_fields
    }
    there = {part for spot in fields.SPOTS for part in spot if isinstance(part, str)}
    assert named - there == {"extends"}


@bounded
@given(st.sampled_from(fields.SPOTS), fields.values)
def test_a_text_in_a_field_is_refused_at_its_place_or_stays_what_it_is(spot: fields.Spot, text: str) -> None:
    assert kept_or_refused(spot, text)


def kept_or_refused(spot: fields.Spot, text: str) -> bool:
    try:
        written = fields.read(fields.put(fields.VALUE, spot, text))
        result = rendered(written)
    except ManifestError as error:
        inputs.refused(error.problems)
        names_a_source = spot[-1] is None and spot[0] == "sources" and len(spot) == 3
        return names_a_source or line_of(spot) in {problem.where.line for problem in error.problems if problem.where}
    except RenderError as error:
        return bool(inputs.refused(error.problems))
    if spot[-1] not in {"recipe", "submodules"} and spot[0] != "dropped_env":  # which have or lack steps of their own
        assert shape(result) == USUAL
    (carried,) = [step for step in dockerfile.parse(result) if step.name == "MANIFEST_JSON"]
    body = "\n".join([*carried.heredocs[0].body, ""])
    assert body == lists.text(lists.content(written))
    said = json.dumps(json.loads(body), ensure_ascii=False)
    if spot[0] != "needs" and spot[-1] not in {"optional", "submodules"}:  # of the machine; a boolean
        return json.dumps(text, ensure_ascii=False)[1:-1] in said
    return True


@settings(bounded, max_examples=60)
@given(fields.values)
def test_what_is_extended_is_a_file_of_this_project_or_refused(text: str) -> None:
    with pytest.raises(BuilderError) as caught:
        fields.read({"extends": text, **fields.VALUE})
    assert all(problem.where for problem in caught.value.problems)


@pytest.mark.parametrize("option", ["--upload-pack=id", "-c"])
def test_no_field_but_prose_and_values_takes_an_option(option: str) -> None:
    taken = set()
    for spot in fields.SPOTS:
        try:
            fields.read(fields.put(fields.VALUE, spot, option))
        except ManifestError:
            continue
        taken.add(spot[0] if spot[0] in {"entrypoint", "summary"} else spot[-1])
    assert taken == {"summary", "reason", "value", "entrypoint"}
