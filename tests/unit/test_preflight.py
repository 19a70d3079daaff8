"""Pins proved against local repositories made of the stand-in sources: what holds, and each way in which it does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import origins
import pytest
from manifests import ROOT, SECOND, changed
from origins import World
from world import Repository, repository, settings

from builder import facts, manifest, preflight
from builder.manifest import Manifest
from builder.report import Check

MANIFEST = origins.MANIFEST
FACTS = origins.FACTS
STANDINS = origins.STANDINS
PLAN = "{}'s requirements have a plan that leaves the base alone"


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return origins.packages(tmp_path_factory.mktemp("index"))


@pytest.fixture
def world(tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = origins.made(tmp_path)
    made.reach(packages, monkeypatch)
    return made


def test_pins_that_hold_pass_every_probe(world: World) -> None:
    report = world.run()
    assert [check.detail for check in report.checks if check.outcome != "passed"] == []
    assert report.passed_strictly
    assert {check.kind for check in report.checks} == {
        "reference",
        "patches",
        "api_window",
        "build_tools",
        "device_code",
        "claims",
        "plan",
    }


def test_the_cache_is_enough_offline_and_says_what_it_could_not_ask(world: World) -> None:
    world.run()
    report = world.run(offline=True)
    untried = [check for check in report.checks if check.outcome == "could not run"]
    assert {check.kind for check in untried} == {"reference"}
    assert {check.detail for check in untried} == {"--offline asks no host"}
    assert report.passed


def test_offline_without_a_cache_is_no_fault_and_no_pass(world: World) -> None:
    report = world.run(offline=True)
    assert {check.outcome for check in report.checks} == {"could not run"}
    assert not report.passed


def test_a_tag_that_moved_says_from_where_to_where(world: World) -> None:
    now = world.repositories["vllm"].commit({"new.txt": "x\n"}, tag="v0.29.0")
    fault = world.faults()["vllm's v0.29.0 is what is pinned"]
    assert fault.detail == f"the tag v0.29.0 has moved: from {world.commits['vllm']} to {now}"
    assert f"/compare/{world.commits['vllm']}...{now}" in fault.hint


def test_a_tag_that_is_gone_is_named(world: World) -> None:
    world.repositories["vllm"].git("tag", "--delete", "v0.29.0")
    assert "has no tag v0.29.0" in world.faults()["vllm's v0.29.0 is what is pinned"].detail


def test_a_commit_that_is_nowhere_fails_whatever_needs_its_tree(world: World) -> None:
    faults = world.faults(world.manifest(vime="1" * 40))
    assert set(faults) == {
        "vime's commit is what is pinned",
        "the patches of megatron apply, in their order",
        "the patches of vime apply, in their order",
        "vllm has every name that vime imports from it",
        "megatron has every name that vime imports from it",
        "vime has every name that megatron imports from it",
        PLAN.format("vime"),
        "vime finds the tools that it is built with",
        "vime's tree has what the manifest says of it",
    }
    assert all("no commit" in fault.detail for fault in faults.values())


def test_a_commit_that_no_name_leads_to_is_asked_for_alone_though_the_cache_has_it(world: World) -> None:
    saver, name = world.repositories["torch_memory_saver"], "torch_memory_saver's commit is what is pinned"
    saver.commit({"later.txt": "x\n"})
    found = {check.name: check for check in world.run().checks}
    assert found[name].detail == f"{world.commits['torch_memory_saver']} is fetched by its own name"
    saver.git("reset", "--hard", "--quiet", "HEAD")
    saver.git("checkout", "--quiet", "--orphan", "other")
    saver.commit({})
    saver.git("branch", "--delete", "--force", "main")
    saver.git("reflog", "expire", "--expire=now", "--all")
    saver.git("gc", "--quiet", "--prune=now")
    fault = world.faults()[name]
    assert "no commit" in fault.detail
    assert world.commits["torch_memory_saver"] in fault.detail


def test_a_host_that_is_down_is_not_a_pin_that_is_wrong(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {source.repository: "http://127.0.0.1:9" for source in MANIFEST.sources.values()}
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings(places, tmp_path / "down")))
    report = world.run()
    assert {check.outcome for check in report.checks} == {"could not run"}


def test_a_name_that_is_gone_comes_with_its_line_and_its_new_place(world: World) -> None:
    vllm = world.repositories["vllm"]
    gone = vllm.folder / "vllm/engine/arg_utils.py"
    text = gone.read_text()
    commit = vllm.commit({"vllm/engine/arg_utils.py": "", "vllm/engine/elsewhere.py": text}, tag="v0.29.0")
    fault = world.faults(world.manifest(vllm=commit))["vllm has every name that vime imports from it"]
    assert "vllm.engine.arg_utils." in fault.detail
    assert ".py:" in fault.detail
    assert "it is now in vllm.engine.elsewhere" in fault.detail


def test_a_name_that_a_patch_takes_from_the_source_that_brings_it_is_found_before_any_build(world: World) -> None:
    commit = world.repositories["vime"].commit({"vime/utils/routing_replay.py": "register_replay = 1\n"})
    fault = world.faults(world.manifest(vime=commit))["vime has every name that megatron imports from it"]
    assert "vime.utils.routing_replay.register_routing_replay, imported at megatron/core/" in fault.detail


def test_a_patch_that_no_longer_applies_shows_what_stands_there(world: World) -> None:
    megatron = world.repositories["megatron"]
    patch = (world.repositories["vime"].folder / MANIFEST.sources["megatron"].patches[0].path).read_text()
    name = next(line.removeprefix("+++ b/") for line in patch.splitlines() if line.startswith("+++ "))
    commit = megatron.commit({name: "quite = 'another file'\n"})
    fault = world.faults(world.manifest(megatron=commit))["the patches of megatron apply, in their order"]
    assert ": conflicts: " in fault.detail
    assert "1: quite = 'another file'" in fault.detail
    assert fault.hint == "sources.megatron.patches: make it anew from the pinned tree"


def test_a_patch_that_is_upstream_now_is_to_be_dropped(world: World) -> None:
    megatron = world.repositories["megatron"]
    patch = world.repositories["vime"].folder / MANIFEST.sources["megatron"].patches[0].path
    megatron.git("apply", str(patch))
    commit = megatron.commit({})
    fault = world.faults(world.manifest(megatron=commit))["the patches of megatron apply, in their order"]
    assert ": already upstream: " in fault.detail
    assert "drop it" in fault.hint


def test_a_patch_that_its_source_no_longer_has_is_missed_there(world: World) -> None:
    path = MANIFEST.sources["megatron"].patches[0].path
    commit = world.repositories["vime"].commit({path: None})
    fault = world.faults(world.manifest(vime=commit))["the patches of megatron apply, in their order"]
    assert fault.detail == f"{path} is not in vime at its commit"


def test_what_is_unknown_could_not_be_proved(world: World) -> None:
    report = world.run(world.manifest((world.commits["torch_memory_saver"], "unknown")))
    untried = {check.name: check.detail for check in report.checks if check.outcome == "could not run"}
    names = {
        "torch_memory_saver's commit is what is pinned",
        "torch_memory_saver finds the tools that it is built with",
        "torch_memory_saver's tree has what the manifest says of it",
    }
    assert untried == dict.fromkeys(names, "sources.torch_memory_saver.commit is unknown")


# What pip would install


def with_line(world: World, name: str, line: str) -> Manifest:
    """The manifest with a commit whose requirement file asks for one thing more."""
    source = MANIFEST.sources[name]
    assert source.requirements and source.requirements.file  # noqa: PT018
    repository = world.repositories[name]
    text = (repository.folder / source.requirements.file).read_text()
    return world.manifest(**{name: repository.commit({source.requirements.file: f"{text}\n{line}\n"}, tag=source.tag)})


def test_a_set_that_wants_another_torch_is_refused_with_who_asks_and_what_to_change(world: World) -> None:
    (fault,) = world.faults(with_line(world, "vllm", "torch>=2.13")).values()
    assert fault.name == PLAN.format("vllm")
    assert "requirements/rocm.txt" in fault.detail
    assert " asks for torch>=2.13" in fault.detail
    assert f"the base has torch {FACTS.distributions['torch']}" in fault.detail
    assert fault.hint == "change sources.vllm.requirements"


def test_every_set_that_has_no_plan_is_told(world: World) -> None:
    pins = {name: with_line(world, name, "nosuchthing").sources[name].commit for name in ("vllm", "vime")}
    faults = world.faults(world.manifest(**pins))
    assert set(faults) == {PLAN.format("vllm"), PLAN.format("vime")}
    assert all("nosuchthing" in fault.detail for fault in faults.values())


def test_what_was_assumed_of_the_base_is_said(world: World) -> None:
    (check,) = [check for check in world.run().checks if check.name == PLAN.format("vime")]
    assert "the base has the" in check.notes[0]


def test_an_index_that_does_not_answer_is_no_verdict(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    report = world.run()
    assert {check.outcome for check in report.checks if check.kind == "plan"} == {"could not run"}
    assert {check.outcome for check in report.checks if check.kind != "plan"} == {"passed"}


# A base that ships vLLM


@pytest.fixture
def shipped(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Manifest, Repository]:
    """The image whose base ships vLLM, on the same repositories and one more; and that of vLLM."""
    second = manifest.load(SECOND)
    engine = second.sources["transformer_engine"]
    origin = repository(tmp_path / "origins/transformer_engine")
    shutil.copytree(STANDINS / "TransformerEngine", origin.folder, dirs_exist_ok=True)
    commits = world.commits | {"transformer_engine": origin.commit({}, tag=engine.tag)}
    places: dict[str, Path | str] = {
        source.repository: f"file://{world.repositories[name].folder}"
        for name, source in second.sources.items()
        if name in world.repositories
    }
    places[engine.repository] = f"file://{origin.folder}"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings(places, tmp_path / "gitconfig.second")))
    pins = [(source.commit, commits[name]) for name, source in second.sources.items()]
    return changed(SECOND, *pins), world.repositories["vllm"]


def outcomes(world: World, written: Manifest) -> dict[str, Check]:
    report = preflight.run(written, facts.of(written, ROOT), world.root)
    return {check.name: check for check in report.checks if check.kind != "plan"}


def test_what_the_base_ships_is_proved_on_the_tree_of_its_tag(
    world: World, shipped: tuple[Manifest, Repository]
) -> None:
    found = outcomes(world, shipped[0])
    assert [check.detail for check in found.values() if check.outcome != "passed"] == []
    assert "vllm's v0.29.0 is what is pinned" in found
    assert "vllm has every name that vime imports from it" in found


def test_a_name_that_the_shipped_vllm_lacks_is_found_before_any_base_is_pulled(
    world: World, shipped: tuple[Manifest, Repository]
) -> None:
    written, vllm = shipped
    text = (vllm.folder / "vllm/engine/arg_utils.py").read_text()
    moved = vllm.commit({"vllm/engine/arg_utils.py": "", "vllm/engine/elsewhere.py": text}, tag="v0.29.0")
    pin = written.sources["vllm"].commit
    files = {path: content.replace(pin.encode(), moved.encode()) for path, content in written.rewritten({}).items()}
    found = outcomes(world, manifest.parse(files[written.path], written.path, files))
    (fault,) = [check for check in found.values() if check.outcome == "failed"]
    assert fault.name == "vllm has every name that vime imports from it"
    assert "it is now in vllm.engine.elsewhere" in fault.detail
