"""Each fault is caught at the stage that docs/faults.md names, by the name that it has there, and by none before."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import catches
import origins
import pytest
from catches import Catches, Row
from faults import BUILD, CHECK, COMMIT, ELSEWHERE, IMAGE, PREFLIGHT, RENDER, Fault, edit
from manifests import ROOT
from origins import MANIFEST, World
from test_checks import BROKEN, FORGED
from test_preflight import packages

from builder import build, manifest, preflight, project, render, rules
from builder.errors import BuilderError, RenderError

__all__ = ["packages"]  # a fixture of another file

every = pytest.mark.parametrize("fault", [*CHECK, *RENDER], ids=lambda fault: fault.title.replace(" ", "-"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project that a fault may change, as the place where the user stands."""
    for folder in ("images", "templates", "dockerfiles"):
        shutil.copytree(ROOT / folder, tmp_path / "project" / folder)
    monkeypatch.setattr(project, "ROOT", tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def checked(root: Path, name: str, *, rendered: bool) -> None:
    """As `check` does; a Dockerfile that is to be fresh is rendered first."""
    written, known = project.load(name)
    text = render.render(written, known, root / "templates")
    if rendered:
        (root / written.dockerfile).write_text(text, encoding="utf-8")
    project.assert_fresh(written, text)


@every
def test_a_fault_of_a_file_is_caught_before_anything_is_asked(fault: Fault, root: Path, caught: Catches) -> None:
    assert fault.project
    checked(root, fault.image, rendered=False)  # nothing is wrong yet
    fault.project(root)
    started = time.monotonic()
    with pytest.raises(BuilderError) as refusal:
        checked(root, fault.image, rendered=fault.rendered)
    seconds = time.monotonic() - started
    stage = "render" if isinstance(refusal.value, RenderError) else "check"
    told = [str(problem) for problem in refusal.value.problems]
    first = next((each for each in told if all(fact in each for fact in fault.says)), told[0])
    assert [fact for fact in fault.says if fact not in first] == [], told
    assert stage == ("render" if fault in RENDER else "check")
    assert fault.by in first
    message = first.partition("\n")[0].replace(f" ({fault.by})", "").replace("error: ", "")
    caught(fault.title, Row(fault.case, stage, fault.by, message, seconds))


# What repositories and an index have to be asked for


def worlds() -> Iterator[list[Fault]]:
    """Faults that can be planted together: each is found by other probes."""
    left = list(PREFLIGHT)
    while left:
        taken: list[Fault] = []
        for fault in left:
            if not {fault.by, *fault.along} & {name for other in taken for name in (other.by, *other.along)}:
                taken.append(fault)
        yield taken
        left = [fault for fault in left if fault not in taken]


def planted(faults: Iterable[Fault], root: Path, packages: Path, environment: pytest.MonkeyPatch) -> World:
    """The world of stand-ins with those faults, pinned by the project at `root`."""
    standins = root.parent / "standins"
    shutil.copytree(ROOT / "standins", standins)
    for fault in faults:
        if fault.trees:
            fault.trees(standins)
        if fault.project:
            fault.project(root)
    world = origins.made(root.parent, standins / "sources")
    world.reach(packages, environment)
    for path in (root / "images").rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        for name, commit in world.commits.items():
            text = text.replace(MANIFEST.sources[name].commit, commit)
        path.write_text(text, encoding="utf-8")
    return world


@pytest.mark.parametrize("together", [*worlds()], ids=lambda together: together[0].title.replace(" ", "-"))
def test_faults_of_pins_are_caught_by_preflight_each_by_its_probe(
    together: list[Fault], root: Path, packages: Path, monkeypatch: pytest.MonkeyPatch, caught: Catches
) -> None:
    world = planted(together, root, packages, monkeypatch)
    for fault in together:
        if fault.later:
            fault.later(world)
    checked(root, MANIFEST.name, rendered=True)  # no stage before this one can see it
    written, known = project.load(MANIFEST.name)
    report = preflight.run(written, known, root)
    failed = {check.name: check for check in report.checks if check.outcome == "failed"}
    expected = {name for fault in together for name in (fault.by, *fault.along)}
    assert set(failed) == expected, {name: check.detail for name, check in failed.items()}
    for fault in together:
        check = failed[fault.by]
        assert [fact for fact in fault.says if fact not in check.detail] == [], check.detail
        first, *others = check.detail.splitlines()
        named = [line.strip() for line in others if fault.says[0] in line and fault.says[0] not in first]
        caught(fault.title, Row(fault.case, "preflight", fault.by, "; ".join([first, *named[:1]]), check.seconds))


# What only a build can see


def test_what_a_build_stops_at_is_seen_by_no_stage_before_it(
    root: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(BUILD, root, packages, monkeypatch)
    checked(root, MANIFEST.name, rendered=True)
    report = preflight.run(*project.load(MANIFEST.name), root)
    assert [check.detail for check in report.checks if check.outcome != "passed"] == []
    assert len({step.by for step in BUILD}) > 1


# What is to be built, and is not known


def test_a_value_that_nobody_knows_is_counted_before_it_is_refused(root: Path, caught: Catches) -> None:
    edit(IMAGE, COMMIT, "unknown")(root)
    checked(root, MANIFEST.name, rendered=True)  # an image may be written, and rehearsed, with it
    written, _ = project.load(MANIFEST.name)
    assert [problem.message for problem in manifest.unknowns(written)] == ["sources.vllm.commit is unknown"]
    started = time.monotonic()
    with pytest.raises(BuilderError) as refusal:
        build.refuse_unknown(written)
    message = str(refusal.value.problems[0])
    caught(
        "a commit that nobody knows", Row("-", "image", "", message.replace("error: ", ""), time.monotonic() - started)
    )


# The table


def test_the_table_has_every_fault_and_no_other() -> None:
    titles = [fault.title for fault in (*CHECK, *RENDER, *PREFLIGHT, *BUILD)]
    titles += [*ELSEWHERE, *BROKEN, *(f"a forged verification: {case}" for case in FORGED)]
    assert len(set(titles)) == len(titles)
    assert sorted(catches.read()) == sorted(titles)


def test_every_rule_of_the_generated_file_is_broken_above() -> None:
    assert {rule.__name__ for rule in rules.RULES} - {fault.by for fault in RENDER} == set()


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_without_a_rule_of_the_generated_file_its_fault_is_called_another_name(
    rule: rules.Rule, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES", [other for other in rules.RULES if other is not rule])
    fault = next(fault for fault in RENDER if fault.by == rule.__name__)
    assert fault.project
    fault.project(root)
    with contextlib.suppress(BuilderError):
        checked(root, fault.image, rendered=fault.rendered)
        return
    with pytest.raises(BuilderError) as refusal:
        checked(root, fault.image, rendered=fault.rendered)
    assert rule.__name__ not in str(refusal.value)
