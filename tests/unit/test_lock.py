"""A lock: what it is of, what makes it stale, and that a build takes its versions and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from copies import Project, copied
from manifests import REAL, SECOND, changed, facts_of
from origins import MANIFEST, World
from test_preflight import PLAN, packages, world

from builder import lists, lock, manifest, render, standin, stock
from builder.entries import Source
from builder.errors import ManifestError, StaleError
from builder.lock import Lock
from builder.manifest import Manifest

__all__ = ["packages", "world"]  # fixtures of another file
NAME = REAL.stem
VERSIONS = {"numpy": "1.26.4", "pyarrow": "25.0.0", "transformers": "5.12.9", "opencv-python-headless": "4.11.0.86"}
FACTS = facts_of(MANIFEST)


def locked(written: Manifest, versions: dict[str, str] | None = None) -> Manifest:
    return written.with_lock(Lock(written.resolution, versions or VERSIONS))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A copy of the project whose first image is locked, and rendered so."""
    found = copied(tmp_path)
    (found.root / MANIFEST.lock_file).write_text(Lock(MANIFEST.resolution, VERSIONS).text(NAME))
    assert found.run("render", NAME).returncode == 0
    return found


# What it is of


def test_a_lock_renders_to_the_same_in_whatever_order_its_versions_came() -> None:
    turned = dict(reversed(VERSIONS.items()))
    assert render.render(locked(MANIFEST, turned), FACTS) == render.render(locked(MANIFEST), FACTS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vLLM, Megatron-LM and vime on rocm/primus", "Something else on rocm/primus"),
        ("gpu_targets: [gfx942, gfx950]", "gpu_targets: [gfx950]"),
        ("disk_gb: 200", "disk_gb: 300"),
        ("asks for numpy 2, imports with numpy 1.26", "another reason"),
        ('value: "0"', 'value: "1"'),
        ("evaluate:\n      reason: for its own benchmarks", "evaluate:\n      reason: for nothing"),
        ("https://github.com/vllm-project/vllm", "https://mirror.example/vllm-project/vllm"),
        ("image: rocm/primus:v26.4", "image: mirror.example/rocm/primus:v26.4"),
        ("nvidia-*:", "nvidia*:"),
        ("modules: [vllm]", "modules: [vllm, other]"),
    ],
)
def test_a_change_that_chooses_no_version_leaves_a_lock_as_it_is(old: str, new: str) -> None:
    assert changed(REAL, (old, new)).resolution == MANIFEST.resolution


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MANIFEST.base.digest, f"sha256:{'1' * 64}"),
        (MANIFEST.sources["vllm"].commit, "1" * 40),
        ("tag: v0.29.0", "tag: v0.29.1"),
        ("version: <26", "version: <25"),
        ("version: 0.12.post1", "version: 0.12.post2"),
        ("      add:\n        joblib:", "      add:\n        joblibs:"),
        ('version: ">=1.4"', 'version: ">=1.5"'),
        ("      without:\n        tilelang:", "      without:\n        tile-lang:"),
        ("  amd-aiter:", "  amd-aiters:"),
        ("  ninja:\n    version: 1.13.0", "  ninja:\n    version: 1.12.0"),
        ("    optional: true", "    optional: false"),
    ],
)
def test_a_change_that_may_choose_another_version_makes_it_stale(old: str, new: str) -> None:
    assert changed(REAL, (old, new)).resolution != MANIFEST.resolution


def test_what_counts_for_nothing_are_keys_of_a_manifest_and_of_its_entries() -> None:
    assert set(Manifest.model_fields) >= lock.BESIDE
    assert {*Source.model_fields, "image", "facts", "reason"} >= lock.BESIDE_IN_ENTRIES


@pytest.mark.parametrize("path", [REAL, SECOND], ids=lambda path: path.stem)
def test_an_image_s_manifest_has_the_digest_of_the_one_that_people_write(path: Path) -> None:
    written = manifest.load(path)
    assert lock.digest(json.loads(lists.text(lists.content(written)))) == written.resolution


def test_a_distribution_may_be_named_like_a_key() -> None:
    odd = [("  numpy:\n    version: ==1.26.4", f"  tests:\n    version: =={version}") for version in ("1", "2")]
    first, second = (changed(REAL, edit) for edit in odd)
    assert first.resolution != second.resolution


# Its file


def test_what_is_written_is_read_again_and_is_what_pip_takes_as_constraints(tmp_path: Path) -> None:
    written = Lock(MANIFEST.resolution, VERSIONS)
    (tmp_path / "x.lock").write_text(written.text("x"))
    assert lock.read(tmp_path / "x.lock") == written
    lines = [line for line in written.text("x").splitlines() if not line.startswith("#")]
    assert lines == sorted(f"{name}=={version}" for name, version in VERSIONS.items())
    assert "://" not in written.text("x")


def test_a_line_that_is_none_is_shown_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text("numpy==1\nNumPy==1\nscipy>=1\nnumpy==2\n")
    with pytest.raises(ManifestError) as caught:
        lock.read(path)
    told = [str(problem).partition("\n")[0].removeprefix(f"{path}:") for problem in caught.value.problems]
    assert told == [
        "1:1: error: no lines `# manifest sha256:...`: a lock is of one manifest",
        "2:1: error: 'NumPy==1' is no line of a lock",
        "3:1: error: 'scipy>=1' is no line of a lock",
        "4:1: error: numpy is written twice",
    ]


# What it does


def test_the_judge_is_told_what_the_manifest_does_not_say_itself() -> None:
    policy = lists.policy(locked(MANIFEST))
    assert policy["locked"] == {"pyarrow": "25.0.0", "transformers": "5.12.9"}


def test_a_pin_of_the_command_line_leaves_the_lock_in_force() -> None:
    pin = {"vime.commit": "1" * 40}
    assert manifest.overridden(locked(MANIFEST), pin).locked == VERSIONS
    stale = MANIFEST.with_lock(Lock("sha256:" + "0" * 64, VERSIONS))
    assert manifest.overridden(stale, pin).stale_lock
    assert manifest.overridden(MANIFEST, pin).lock is None


def test_a_stale_lock_renders_to_nothing() -> None:
    with pytest.raises(StaleError):
        render.render(MANIFEST.with_lock(Lock("sha256:" + "0" * 64, VERSIONS)), FACTS)


def test_check_and_render_name_the_command_for_a_stale_lock(project: Project) -> None:
    assert project.run("check", NAME).returncode == 0
    assert '"transformers": "5.12.9"' in (project.root / MANIFEST.dockerfile).read_text()
    project.edit(f"images/{NAME}.yaml", "tag: v0.29.0", "tag: v0.29.1")
    message = f"error: images/{NAME}.lock is stale: pins or requirements of images/{NAME}.yaml have changed since\n"
    hint = f"    hint: python -m builder lock {NAME}\n"
    for words in (("check", NAME), ("render", NAME), ("render", "--check", NAME), ("rehearse", NAME), ("image", NAME)):
        assert project.refusal(StaleError, *words) == message + hint


def test_the_stand_in_index_serves_every_version_of_a_lock() -> None:
    served = {(one.name, one.version): one for one in stock.index(locked(MANIFEST), FACTS, standin.STANDINS)}
    assert set(VERSIONS.items()) <= set(served)
    plain = {(one.name, one.version): one for one in stock.index(MANIFEST, FACTS, standin.STANDINS)}
    assert served["transformers", "5.12.9"].requires == plain["transformers", "5.12.0"].requires


def test_a_lock_of_what_is_served_anyway_changes_nothing_of_the_index() -> None:
    plain = stock.index(MANIFEST, FACTS, standin.STANDINS)
    traps = {"torch", "torchvision", "torchaudio", "triton"}
    versions = {one.name: one.version for one in plain if one.name not in traps}
    again = stock.index(locked(MANIFEST, versions), FACTS, standin.STANDINS)
    assert {(one.name, one.version): one.contents() for one in again} == {
        (one.name, one.version): one.contents() for one in plain
    }


# Pins that are proved, and pins that change


def test_the_preflight_plans_what_is_locked(world: World) -> None:
    written = locked(world.manifest(), {"sentencepiece": "0.1"})
    plan = {check.name: check for check in world.run(written).checks}[PLAN.format("vllm")]
    assert plan.outcome == "failed"
    assert "images/rocm7.14.lock has sentencepiece 0.1" in plan.detail
    assert plan.hint == "change sources.vllm.requirements or delete images/rocm7.14.lock"


def test_the_preflight_tells_a_stale_lock_and_plans_without_it(world: World) -> None:
    written = world.manifest().with_lock(Lock("sha256:" + "0" * 64, {"sentencepiece": "0.1"}))
    (fault,) = world.faults(written).values()
    assert fault.name == "images/rocm7.14.lock is of this manifest"
    assert fault.hint == "python -m builder lock rocm7.14"
