"""Other pins: exactly those scalars change, and only if they hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import IMAGES, REAL, ROOT, write
from origins import MANIFEST, World
from test_preflight import packages, world
from world import settings

from builder import facts, manifest
from builder.errors import DriftError, DriftUnaskedError, PreflightError, UnwritableError, UsageError
from builder.lock import Lock

__all__ = ["packages", "world"]  # fixtures of another file
FACTS = facts.of(MANIFEST, ROOT)
NAME = REAL.stem
DOCKERFILE = MANIFEST.dockerfile
SHARED = "images/shared/vime.yaml"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(world: World, tmp_path: Path) -> Path:
    """A copy of this project whose manifest pins the world."""
    root = tmp_path / "copy"
    for folder in ("builder", "dockerfiles", "images", "templates"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for other in set(IMAGES) - {REAL}:  # they pin what is not here
        (root / "images" / other.name).unlink()
        (root / "dockerfiles" / f"Dockerfile.{other.stem}").unlink()
    write(world.manifest(), root)
    assert command(root, "render", NAME).returncode == 0
    return root


def command(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root), "DOCKER_HOST": "unix:///nowhere.sock"}
    done = subprocess.run(
        [sys.executable, "-m", "builder", *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def files(root: Path) -> dict[str, bytes]:
    return {name: (root / name).read_bytes() for name in (f"images/{NAME}.yaml", SHARED, DOCKERFILE)}


def test_a_bump_that_holds_changes_tag_and_commit_and_renders(world: World, project: Path) -> None:
    before = files(project)
    commit = world.repositories["vllm"].commit({"CHANGES": "x\n"}, tag="v0.29.1")
    done = command(project, "bump", NAME, "vllm=v0.29.1", "--summary", "summary.md")
    assert done.returncode == 0, done.stderr + done.stdout
    old, new = (files_[f"images/{NAME}.yaml"].decode() for files_ in (before, files(project)))
    assert new == old.replace("tag: v0.29.0", "tag: v0.29.1").replace(world.commits["vllm"], commit)
    assert command(project, "check", NAME).returncode == 0
    summary = (project / "summary.md").read_text()
    assert "| sources.vllm.tag | `v0.29.0` | `v0.29.1` |" in summary
    assert f"/compare/{world.commits['vllm']}...{commit})" in summary
    assert "* BUILD_VLLM" in summary
    assert "* SEAL_BASE" not in summary


def test_a_bump_removes_the_lock_of_the_pins_before_and_says_how_to_get_another(world: World, project: Path) -> None:
    world.repositories["vllm"].commit({"CHANGES": "x\n"}, tag="v0.29.1")
    path = project / MANIFEST.lock_file
    path.write_text(Lock(world.manifest().resolution, {"transformers": "5.12.0"}).text(NAME))
    assert command(project, "render", NAME).returncode == 0
    assert command(project, "bump", NAME, "vllm=v0.29.0").returncode == 0
    assert path.is_file(), "the pins are these already"
    done = command(project, "bump", NAME, "vllm=v0.29.1", "--summary", "summary.md")
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"once an image of these is verified: python -m builder lock {NAME}\n" in done.stderr
    assert f"removed: {MANIFEST.lock_file}\n" in done.stderr
    assert f"`{MANIFEST.lock_file}` goes" in (project / "summary.md").read_text()
    assert not path.exists()
    assert command(project, "check", NAME).returncode == 0


@pytest.mark.parametrize("written", [["manifest"], ["manifest", "dockerfile"]], ids=" and ".join)
def test_a_bump_that_was_killed_before_its_lock_went_can_be_repeated(
    world: World, project: Path, written: list[str]
) -> None:
    """The manifest is replaced first, then the Dockerfile; the lock goes last."""
    world.repositories["vllm"].commit({"CHANGES": "x\n"}, tag="v0.29.1")
    lock = project / MANIFEST.lock_file
    lock.write_text(Lock(world.manifest().resolution, {"transformers": "5.12.0"}).text(NAME))
    assert command(project, "render", NAME).returncode == 0
    locked, before = lock.read_bytes(), files(project)
    assert command(project, "bump", NAME, "vllm=v0.29.1").returncode == 0
    after = files(project)
    lock.write_bytes(locked)
    if "dockerfile" not in written:
        (project / DOCKERFILE).write_bytes(before[DOCKERFILE])
    done = command(project, "bump", NAME, "vllm=v0.29.1")
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"removed: {MANIFEST.lock_file}\n" in done.stderr
    assert (files(project), lock.exists()) == (after, False)
    assert command(project, "check", NAME).returncode == 0


def test_the_summary_says_what_the_sources_ask_for_and_what_becomes_of_patches_and_how_long_the_steps_took(
    world: World, project: Path
) -> None:
    vllm, vime = world.repositories["vllm"], world.repositories["vime"]
    listed = (vllm.folder / "requirements/rocm.txt").read_text()
    vllm.commit(
        {"requirements/rocm.txt": listed.replace("peft\n", "peft>=0.1\n") + "pyzmq\nx_y; extra == '|<b>'\n"},
        tag="v0.29.1",
    )
    engine = "vime/backends/vllm_utils/vllm_engine.py"
    commit = vime.commit({engine: f'"""Longer now."""\n\n\n{(vime.folder / engine).read_text()}'})
    kept = project / "build" / MANIFEST.tag(MANIFEST.gpu_targets[:1]).partition(":")[2]
    kept.mkdir(parents=True)
    (kept / "timings.json").write_text(json.dumps({"BUILD_VLLM": 3600.0, "FETCH_VIME": 30.0, "SEAL_BASE": 60.0}))
    words = ("vllm=v0.29.1", f"vime={commit}", "--summary", "summary.md", "--keep-going")
    command(project, "bump", NAME, *words)
    summary = (project / "summary.md").read_text()
    assert r"* vllm: peft -> peft\>=0.1" in summary
    assert "* vllm: nothing -> pyzmq" in summary
    assert "* vime: images/patches/vime/engine-mask.patch: applies -> applies with an offset" in summary
    assert r"* vllm: nothing -> x\_y" in summary
    assert r"\|\<b\>" in summary, "a requirement line is no Markdown"
    assert "* BUILD_VLLM, 60.0 min the last time" in summary
    assert "* FETCH_VIME, 0.5 min the last time" in summary
    assert "2 of " in summary
    assert " steps are known to take 60 min together." in summary


def test_a_summary_that_cannot_be_written_is_told_before_anything_is_fetched(project: Path) -> None:
    (project / "file").touch()
    done = command(project, "bump", NAME, "vllm=v0.29.1", "--summary", "file/summary.md")
    assert done.returncode == UnwritableError.exit_code
    assert (done.stdout, done.stderr.splitlines()[0]) == ("", "error: cannot write file/summary.md: file exists")


def test_the_summary_of_one_pin_leaves_out_the_others(world: World, project: Path) -> None:
    world.repositories["vllm"].commit({"CHANGES": "x\n"}, tag="v0.29.1")
    command(project, "bump", NAME, "vllm=v0.29.1", "--summary", "summary.md")
    summary = (project / "summary.md").read_text()
    assert "### What the sources ask for\n\n* the same\n" in summary
    assert "### Patches\n\n* each as before\n" in summary


def test_a_bump_across_a_move_is_refused_with_the_new_place_and_writes_nothing(world: World, project: Path) -> None:
    before = files(project)
    vllm = world.repositories["vllm"]
    text = (vllm.folder / "vllm/engine/arg_utils.py").read_text()
    vllm.commit({"vllm/engine/arg_utils.py": "", "vllm/engine/elsewhere.py": text}, tag="v0.30.0")
    done = command(project, "bump", NAME, "vllm=v0.30.0")
    assert done.returncode == PreflightError.exit_code
    assert "it is now in vllm.engine.elsewhere" in done.stdout
    assert "error: 1 of 20 probes failed: nothing is written" in done.stderr
    assert files(project) == before
    done = command(project, "bump", NAME, "vllm=v0.30.0", "--keep-going")
    assert done.returncode == PreflightError.exit_code
    assert "it is now in vllm.engine.elsewhere" in done.stdout
    assert b"v0.30.0" in files(project)[f"images/{NAME}.yaml"]


def test_a_dry_run_writes_nothing(world: World, project: Path) -> None:
    before = files(project)
    world.repositories["vime"].commit({"CHANGES": "x\n"})
    done = command(project, "bump", NAME, "vime=main", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"sources.vime.commit: {world.commits['vime']} -> " in done.stderr
    assert files(project) == before


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ("vlm=v1", "did you mean 'vllm'?"),
        ("vllm=v0.29.9", "has no tag 'v0.29.9'\n    hint: did you mean 'v0.29.0'?"),
        ("vllm=main", "has no tag 'main'"),
        ("vllm", "NAME=VALUE"),
        ("vime=nowhere", "has no tag or branch 'nowhere'"),
    ],
)
def test_what_is_not_there_is_refused_with_the_near_one(project: Path, pin: str, message: str) -> None:
    before = files(project)
    done = command(project, "bump", NAME, pin)
    assert done.returncode == UsageError.exit_code
    assert message in done.stderr
    assert files(project) == before


def test_a_tag_that_has_left_its_pin_is_drift(world: World, project: Path) -> None:
    done = command(project, "bump", "--check-drift")
    assert done.returncode == DriftUnaskedError.exit_code, "no engine asks the registry for the base's tag"
    assert f"{NAME} for gfx942, gfx950: 1 passed, 0 failed, 1 could not run" in done.stdout
    assert "1 of 2 tags could not be asked for" in done.stderr
    now = world.repositories["vllm"].commit({"new.txt": "x\n"}, tag="v0.29.0")
    done = command(project, "bump", NAME, "--check-drift")
    assert done.returncode == DriftError.exit_code
    assert f"the tag v0.29.0 has moved: from {world.commits['vllm']} to {now}" in done.stdout
    assert f"python -m builder bump {NAME} vllm=v0.29.0" in done.stdout
    assert "1 of 2 tags are no longer at their pins" in done.stderr


def test_a_repository_that_does_not_answer_is_no_drift(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {source.repository: "http://127.0.0.1:9" for source in MANIFEST.sources.values()}
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings(places, tmp_path / "down")))
    for words in ((), ("--offline",)):
        done = command(project, "bump", "--check-drift", *words)
        assert done.returncode == DriftUnaskedError.exit_code
        assert "2 of 2 tags could not be asked for" in done.stderr


STYLES = {
    "block": "{key}: {value}",
    "double": '{key}: "{value}"',
    "single": "{key}: '{value}'",
    "comment": "{key}:   {value}   # a remark",
}


@given(
    style=st.sampled_from(sorted(STYLES)),
    ends=st.sampled_from(["\n", "\r\n"]),
    commit=st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
)
def test_every_byte_but_the_scalar_stays(
    tmp_path_factory: pytest.TempPathFactory, style: str, ends: str, commit: str
) -> None:
    folder = tmp_path_factory.mktemp("bump")
    shutil.copytree(ROOT / "images", folder / "images")
    for name, file in (("vllm", folder / "images" / REAL.name), ("vime", folder / SHARED)):
        old = MANIFEST.sources[name].commit
        text = file.read_text(encoding="utf-8").replace(f"commit: {old}", STYLES[style].format(key="commit", value=old))
        file.write_bytes(text.replace("\n", ends).encode())
        real = manifest.load(folder / "images" / REAL.name)
        before = {path: path.read_bytes() for path in real.files}
        written = real.rewritten({("sources", name, "commit"): commit})
        assert written == before | {file: before[file].replace(old.encode(), commit.encode())}


def test_a_scalar_in_flow_style_is_changed_too(tmp_path: Path) -> None:
    text = REAL.read_text(encoding="utf-8")
    block = re.search(r"^base:\n(?:  .*\n)+", text, re.MULTILINE)
    assert block
    pairs = ", ".join(line.strip() for line in block[0].splitlines()[1:])
    shutil.copytree(ROOT / "images", tmp_path / "images")
    path = tmp_path / "images" / REAL.name
    path.write_text(text.replace(block[0], f"base: {{{pairs}}}\n"), encoding="utf-8")
    digest = f"sha256:{'a' * 64}"
    written = manifest.load(path).rewritten({("base", "digest"): digest})[path]
    assert manifest.parse(written, path).base.digest == digest
    assert written == path.read_bytes().replace(MANIFEST.base.digest.encode(), digest.encode())


# Several images


@pytest.fixture
def two(project: Path) -> Path:
    """The project with a second image: the shared half is the same, its vLLM is called otherwise."""
    text = (project / f"images/{NAME}.yaml").read_text()
    other = text.replace("sources:\n  vllm:", "sources:\n  vime:\n    imports_from: [engine, megatron]\n  engine:")
    assert other != text
    (project / "images/rocm7.15.yaml").write_text(other)
    assert command(project, "render").returncode == 0
    return project


def manifests_of(root: Path) -> dict[str, bytes]:
    paths = [*root.glob("images/*.yaml"), *root.glob("images/shared/*"), *root.glob("dockerfiles/*")]
    return {path.name: path.read_bytes() for path in paths}


def test_a_bump_of_all_images_changes_each_that_has_the_source(world: World, two: Path) -> None:
    before = manifests_of(two)
    commit = world.repositories["vllm"].commit({"CHANGES": "x\n"}, tag="v0.29.1")
    done = command(two, "bump", "--all-images", "vllm=v0.29.1", "--summary", "summary.md")
    assert done.returncode == 0, done.stderr + done.stdout
    old = before[REAL.name].replace(b"tag: v0.29.0", b"tag: v0.29.1")
    assert manifests_of(two)[REAL.name] == old.replace(world.commits["vllm"].encode(), commit.encode())
    assert manifests_of(two)["rocm7.15.yaml"] == before["rocm7.15.yaml"]
    assert f"{NAME}.sources.vllm.commit: {world.commits['vllm']} -> {commit}" in done.stderr
    assert "rocm7.15: has none of vllm" in done.stderr
    assert (two / "summary.md").read_text().count(": other pins") == 1
    assert command(two, "check").returncode == 0


def test_a_pin_that_images_share_is_changed_in_all_of_them_or_in_none(world: World, two: Path) -> None:
    before = manifests_of(two)
    saver = world.repositories["torch_memory_saver"].commit({"CHANGES": "x\n"})
    done = command(two, "bump", NAME, f"torch_memory_saver={saver}")
    assert done.returncode == UsageError.exit_code
    assert f"{SHARED} is images/rocm7.15.yaml's too" in done.stderr
    assert manifests_of(two) == before
    done = command(two, "bump", "--all-images", f"torch_memory_saver={saver}")
    assert done.returncode == 0, done.stderr
    changed = {name for name, content in manifests_of(two).items() if content != before[name]}
    assert changed == {"vime.yaml", f"Dockerfile.{NAME}", "Dockerfile.rocm7.15"}
    assert command(two, "check").returncode == 0


def test_a_bump_of_all_images_that_one_refuses_changes_none(world: World, two: Path) -> None:
    before = manifests_of(two)
    vllm = world.repositories["vllm"]
    vllm.commit({"vllm/engine/arg_utils.py": ""}, tag="v0.30.0")
    done = command(two, "bump", "--all-images", "vllm=v0.30.0")
    assert done.returncode == PreflightError.exit_code
    assert manifests_of(two) == before


@pytest.mark.parametrize(
    "words", [("vllm=v1",), (NAME,), (NAME, "vllm=v1", "--all-images"), ("--all-images",), ("--all-images", "vlm=v1")]
)
def test_a_bump_that_names_nothing_is_refused(project: Path, words: tuple[str, ...]) -> None:
    before = files(project)
    assert command(project, "bump", *words).returncode == UsageError.exit_code
    assert files(project) == before
