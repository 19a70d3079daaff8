"""The order of the steps: what stands behind a change, and so runs again, is what reads it, but for the stated trades."""

from __future__ import annotations

import pytest
from manifests import REAL, changed, facts_of, rendered

from benchmarks import bumps
from benchmarks.changes import OWN, SHARED, Change, one_of_each
from builder import dockerfile, manifest, render
from builder.dockerfile import Instruction

COMMITS = {source.name: source.commit for source in manifest.load(REAL).fetched}
LATER = {name: f"{number + 1}" * 40 for number, name in enumerate(COMMITS)}
CHANGES = one_of_each(COMMITS, LATER, "another")
OF_A_MANIFEST = [change for change in CHANGES if change.edits and {path for path, *_ in change.edits} <= {OWN, SHARED}]
OF_A_PROGRAM = [change for change in CHANGES if change.part.endswith(".py")]


def told(change: Change) -> str:
    return change.what.replace(" ", "-")


def running_from(steps: tuple[Instruction, ...], first: int) -> set[str]:
    """The steps that run something from one on, by their names in the table."""
    names = list(bumps.named(rendered(REAL)).values())
    behind = sum(step.keyword == "RUN" for step in steps[first:])
    return set(names[len(names) - behind :])


def holds(change: Change, again: set[str]) -> bool:
    needed = set(bumps.dependents(change.part))
    return needed <= again <= needed | set(bumps.TRADES)


@pytest.mark.parametrize("change", OF_A_MANIFEST, ids=told)
def test_a_change_of_a_manifest_stands_behind_all_that_does_not_read_it(change: Change) -> None:
    written = changed(REAL, *((old, new) for _, old, new in change.edits))
    before, after = (dockerfile.parse(text) for text in (rendered(REAL), render.render(written, facts_of(written))))
    same = [one.inputs == other.inputs or one.keyword == "LABEL" for one, other in zip(before, after, strict=False)]
    computed = ("OVERRIDDEN=", "PINS=")  # arguments behind the last step that runs something
    first = next((n for n, equal in enumerate(same) if not equal and not after[n].text.startswith(computed)), len(same))
    assert holds(change, running_from(after, first))


@pytest.mark.parametrize("change", OF_A_PROGRAM, ids=told)
def test_a_program_stands_behind_all_that_does_not_read_it(change: Change) -> None:
    steps = dockerfile.parse(rendered(REAL))
    first = [step.name for step in steps].index(change.part.upper().replace(".", "_"))
    assert holds(change, running_from(steps, first))


def test_in_the_usual_shape_every_argument_stands_above_every_step_that_runs() -> None:
    keywords = [step.keyword for step in dockerfile.parse(bumps.usual(rendered(REAL)))]
    assert sorted(keywords) == sorted(step.keyword for step in dockerfile.parse(rendered(REAL)))
    assert "ARG" not in keywords[keywords.index("RUN") :]
