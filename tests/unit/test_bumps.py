"""The order of the steps: what stands behind a change, and so runs again, is what reads it, but for the stated trades."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from manifests import REAL, ROOT, SECOND, facts_of, rendered

from benchmarks import bumps, reads
from benchmarks.all_changes import one_of_each
from benchmarks.changes import SHARED, Change
from benchmarks.every_key import OF_THE_FIRST, UV
from benchmarks.reads import ANOTHER_STEP, NO_STEP
from builder import dockerfile, facts, manifest, render, schema
from builder.dockerfile import Instruction
from builder.manifest import Manifest

PATHS = {path.stem: path for path in (REAL, SECOND)}
COMMITS = {source.name: source.commit for path in PATHS.values() for source in manifest.load(path).fetched}
LATER = {name: f"{number + 1}" * 40 for number, name in enumerate(COMMITS)}
CHANGES = one_of_each(COMMITS, LATER, dict.fromkeys(PATHS, "another"), "another")
OF_A_MANIFEST = [
    change for change in CHANGES if change.edits and all(path.endswith(".yaml") for path, *_ in change.edits)
]
OF_A_PROGRAM = [change for change in CHANGES if change.part.endswith(".py")]


def told(change: Change) -> str:
    return f"{change.image}-{change.what.replace(' ', '-')}"


def with_change(change: Change) -> Manifest:
    path = PATHS[change.image]
    texts = {file: file.read_text("utf-8") for file in manifest.load(path).files}
    for name, old, new in change.edits:
        assert old in texts[ROOT / name], old
        texts[ROOT / name] = texts[ROOT / name].replace(old, new, 1)
    files = {file: text.encode() for file, text in texts.items()}
    return manifest.parse(files[path], path, files)


# With the keys that neither of the project's has.
FULL = with_change(
    Change(
        what="every key",
        part="",
        edits=(
            *(
                edit
                for change in OF_THE_FIRST
                if {"source_builds.*", "ignored_pip_options.*"} & set(change.keys)
                for edit in change.edits
            ),
            (SHARED, f"sha256: {UV[1]}\n", f"sha256: {UV[1]}\n    reason: nothing\n"),
        ),
    )
)


def running_from(steps: tuple[Instruction, ...], first: int, image: str) -> set[str]:
    """The steps that run something from one on, by their names in the table."""
    names = list(reads.named(rendered(PATHS[image]), image).values())
    behind = sum(step.keyword == "RUN" for step in steps[first:])
    return set(names[len(names) - behind :])


def holds(change: Change, again: set[str]) -> bool:
    needed = set(reads.dependents(change.part, change.image))
    return needed <= again <= needed | set(reads.TRADES)


def running_again(before: str, after: str, image: str) -> set[str]:
    """The steps that run something behind the first that differs."""
    one, other = dockerfile.parse(before), dockerfile.parse(after)
    same = [old.inputs == new.inputs or old.keyword == "LABEL" for old, new in zip(one, other, strict=False)]
    computed = ("OVERRIDDEN=", "PINS=")  # arguments behind the last step that runs something
    first = next((n for n, equal in enumerate(same) if not equal and not other[n].text.startswith(computed)), len(same))
    return running_from(other, first, image)


def keys(kind: Any, path: str = "") -> Iterator[str]:
    """Every key that may stand in what `kind` reads, with a star for each name or number."""
    kind = schema._bare(kind)  # noqa: SLF001
    if isinstance(kind, type) and issubclass(kind, schema.Written):
        for name, field in kind.model_fields.items():
            yield from keys(field.annotation, f"{path}.{name}".lstrip("."))
    elif (origin := typing.get_origin(kind)) in {tuple, Mapping}:
        yield f"{path}.*"
        yield from keys(typing.get_args(kind)[origin is Mapping], f"{path}.*")
    else:
        yield path


def test_each_key_of_a_manifest_has_a_change_or_a_reason_why_it_has_none() -> None:
    rows = {key for change in CHANGES for key in change.keys}
    assert not rows & {*NO_STEP, *ANOTHER_STEP}
    assert rows | {*NO_STEP, *ANOTHER_STEP} == set(keys(Manifest))


def test_each_part_that_changes_is_read_by_a_step_of_its_image() -> None:
    for change in CHANGES:
        read = {word for step in reads.steps(change.image) for word in reads.READS[step].split()}
        assert set(change.part.split()) <= read, change.what


@pytest.mark.parametrize("change", OF_A_MANIFEST, ids=told)
def test_a_change_of_a_manifest_stands_behind_all_that_does_not_read_it(change: Change) -> None:
    written = with_change(change)
    after = render.render(written, facts_of(written))
    assert written != manifest.load(PATHS[change.image])
    assert holds(change, running_again(rendered(PATHS[change.image]), after, change.image))


@pytest.mark.parametrize("key", NO_STEP)
def test_a_key_that_is_said_to_change_no_step_changes_none(key: str) -> None:
    written, path = next(
        (written, path)
        for written in (FULL, manifest.load(SECOND))
        for path in written._document.places  # noqa: SLF001
        if fits(path, key)
    )
    text = str(schema.value_at(written._document, path))  # noqa: SLF001
    files = written.rewritten({path: f"{text}-again"})
    shared = ROOT / "images/shared" / f"{text.rpartition('/')[2]}-again.yaml"  # where it names the shared file
    again = manifest.parse(files[written.path], written.path, {**files, shared: files[ROOT / SHARED]})
    assert again != written
    base = facts.of(manifest.load(written.path), ROOT)
    before, after = render.render(written, base), render.render(again, base)
    assert running_again(before, after, written.name) == set()


def fits(path: tuple[str | int, ...], key: str) -> bool:
    wanted = key.split(".")
    return len(path) == len(wanted) and all(want in {"*", part} for want, part in zip(wanted, path, strict=True))


@pytest.mark.parametrize("change", OF_A_PROGRAM, ids=told)
def test_a_program_stands_behind_all_that_does_not_read_it(change: Change) -> None:
    steps = dockerfile.parse(rendered(REAL))
    first = [step.name for step in steps].index(change.part.upper().replace(".", "_"))
    assert holds(change, running_from(steps, first, change.image))


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_in_the_usual_shape_every_argument_stands_above_every_step_that_runs(path: Path) -> None:
    keywords = [step.keyword for step in dockerfile.parse(bumps.usual(rendered(path)))]
    assert sorted(keywords) == sorted(step.keyword for step in dockerfile.parse(rendered(path)))
    assert "ARG" not in keywords[keywords.index("RUN") :]


def test_a_change_that_cannot_be_built_hides_no_other_and_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    last = ["VERIFY", reads.PROOF]
    change = next(change for change in OF_THE_FIRST if change.part == "checks")
    bumps.report([change, change], ["no space\nleft", (last, last)])
    told = json.loads(capsys.readouterr().out)
    assert [row[3] for row in told["rows"]] == [None, 2]
    assert told["rows"][0][-1] == "could not be measured: no space left"
    assert [target["value"] for target in told["targets"]] == [0, 0, 0, 1]
