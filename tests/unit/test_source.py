"""The program that fetches sources, run as the image runs it, on real repositories."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "builder" / "inside" / "source.py"
PATCH = """\
--- a/greeting.txt
+++ b/greeting.txt
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository with a tagged commit and a later one."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "greeting.txt").write_text("one\ntwo\nthree\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "tag", "-a", "v1.0", "-m", "one")
    (folder / "greeting.txt").write_text("one\ntwo\nthree\nfour\n")
    git(folder, "commit", "--quiet", "-am", "second")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    return folder


def fetch(upstream: Path, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, str(PROGRAM), "demo", "--repository", upstream.as_uri(), "--distribution", "demo",
        "--checkout", str(tmp_path / "checkout"), "--root", str(tmp_path / "root"), *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False)


def record(tmp_path: Path) -> dict[str, object]:
    return dict(json.loads((tmp_path / "root" / "sources" / "demo.json").read_text()))


def test_an_annotated_tag_is_checked_out_at_the_commit_that_it_names(upstream: Path, tmp_path: Path) -> None:
    commit = git(upstream, "rev-parse", "v1.0^{commit}")
    done = fetch(upstream, tmp_path, "--tag", "v1.0", "--commit", commit, "--kept")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "checkout" / "greeting.txt").read_text() == "one\ntwo\nthree\n"
    assert record(tmp_path) == {
        "name": "demo",
        "repository": upstream.as_uri(),
        "tag": "v1.0",
        "commit": commit,
        "checkout": str(tmp_path / "checkout"),
        "distribution": "demo",
        "kept": True,
        "submodules": {},
        "patches": [],
        "diff_sha256": hashlib.sha256(b"").hexdigest(),
    }


def test_a_commit_alone_is_fetched_without_history(upstream: Path, tmp_path: Path) -> None:
    commit = git(upstream, "rev-parse", "v1.0^{commit}")
    assert fetch(upstream, tmp_path, "--commit", commit).returncode == 0
    assert git(tmp_path / "checkout", "rev-list", "--count", "HEAD") == "1"
    assert git(tmp_path / "checkout", "rev-parse", "HEAD") == commit
    assert record(tmp_path)["kept"] is False


def beyond(checkout: Path) -> set[str]:
    """The objects that a repository has and its commit does not need; a tag's own says what was fetched."""
    listed = git(checkout, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)").splitlines()
    needed = git(checkout, "rev-list", "--objects", "--no-object-names", "HEAD").split()
    return {name for name, kind in map(str.split, listed) if kind != "tag"}.difference(needed)


def test_nothing_is_fetched_beyond_the_commit(upstream: Path, tmp_path: Path) -> None:
    patch = tmp_path / "two.patch"
    patch.write_text(PATCH)
    commit = git(upstream, "rev-parse", "v1.0^{commit}")
    assert fetch(upstream, tmp_path, "--tag", "v1.0", "--commit", commit, "--patch", str(patch)).returncode == 0
    assert beyond(tmp_path / "checkout") == set()


def test_a_tag_at_another_commit_is_refused_with_both_commits(upstream: Path, tmp_path: Path) -> None:
    tagged, wanted = git(upstream, "rev-parse", "v1.0^{commit}"), git(upstream, "rev-parse", "HEAD")
    done = fetch(upstream, tmp_path, "--tag", "v1.0", "--commit", wanted)
    assert done.returncode == 1
    assert f"sources.demo: v1.0 of {upstream.as_uri()} is {tagged}, not {wanted}" in done.stderr
    assert not (tmp_path / "root").exists()


def test_a_patch_is_applied_and_what_it_changed_is_recorded(upstream: Path, tmp_path: Path) -> None:
    patch = tmp_path / "two.patch"
    patch.write_text(PATCH)
    commit = git(upstream, "rev-parse", "HEAD")
    assert fetch(upstream, tmp_path, "--commit", commit, "--patch", str(patch)).returncode == 0
    assert (tmp_path / "checkout" / "greeting.txt").read_text() == "one\nTWO\nthree\nfour\n"
    diff = subprocess.run(["git", "-C", str(tmp_path / "checkout"), "diff", "HEAD"], check=True, capture_output=True)
    found = record(tmp_path)
    assert found["patches"] == [{"path": str(patch), "sha256": hashlib.sha256(PATCH.encode()).hexdigest()}]
    assert found["diff_sha256"] == hashlib.sha256(diff.stdout).hexdigest()


@pytest.mark.parametrize(
    "wrong", [PATCH.replace("two", "zwei"), PATCH.replace("\n", "\r\n"), ""], ids=["context", "crlf", "empty"]
)
def test_a_patch_that_does_not_apply_stops_with_its_name(upstream: Path, tmp_path: Path, wrong: str) -> None:
    patch = tmp_path / "wrong.patch"
    patch.write_bytes(wrong.encode())
    done = fetch(upstream, tmp_path, "--commit", git(upstream, "rev-parse", "HEAD"), "--patch", str(patch))
    assert done.returncode == 1
    assert f"sources.demo: {patch} does not apply" in done.stderr
    assert not (tmp_path / "root").exists()


def test_a_commit_that_is_nowhere_stops_after_bounded_attempts(
    upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = tmp_path / "source.py"
    impatient.write_text(PROGRAM.read_text().replace("PAUSE_S = 3, 5", "PAUSE_S = 3, 0"))
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", impatient)
    done = fetch(upstream, tmp_path, "--commit", "1" * 40)
    assert done.returncode == 1
    assert f"sources.demo: cannot fetch {'1' * 40}" in done.stderr
    assert done.stderr.count("remote error") == 3


def test_what_came_at_once_is_not_asked_for_again(
    upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TRACE", "1")
    done = fetch(upstream, tmp_path, "--commit", git(upstream, "rev-parse", "HEAD"))
    assert done.returncode == 0
    assert done.stderr.count("built-in: git fetch ") == 1


@pytest.fixture
def with_submodule(upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A repository whose tree names a commit of the other one, not its newest; and that commit."""
    settings = tmp_path / "gitconfig"
    settings.write_text('[protocol "file"]\n\tallow = always\n')  # git takes a submodule from no file by itself
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    named = git(upstream, "rev-parse", "v1.0^{commit}")
    folder = tmp_path / "outer"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "submodule", "--quiet", "add", upstream.as_uri(), "3rdparty/inner")
    git(folder / "3rdparty/inner", "checkout", "--quiet", named)
    git(folder, "commit", "--quiet", "-am", "with a submodule")
    return folder, named


def test_submodules_are_had_at_the_commits_that_the_tree_names(
    with_submodule: tuple[Path, str], tmp_path: Path
) -> None:
    outer, named = with_submodule
    done = fetch(outer, tmp_path, "--commit", git(outer, "rev-parse", "HEAD"), "--submodules", "--kept")
    assert done.returncode == 0, done.stderr
    assert git(tmp_path / "checkout", "status", "--porcelain") == ""
    assert (tmp_path / "checkout/3rdparty/inner/greeting.txt").read_text() == "one\ntwo\nthree\n"
    assert record(tmp_path)["submodules"] == {"3rdparty/inner": named}
    assert beyond(tmp_path / "checkout/3rdparty/inner") == set()


def test_submodules_that_cannot_be_had_stop_with_their_source(
    with_submodule: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = tmp_path / "source.py"
    impatient.write_text(PROGRAM.read_text().replace("PAUSE_S = 3, 5", "PAUSE_S = 3, 0"))
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", impatient)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    outer = with_submodule[0]
    done = fetch(outer, tmp_path, "--commit", git(outer, "rev-parse", "HEAD"), "--submodules")
    assert done.returncode == 1
    assert f"sources.demo: cannot fetch the submodules of {outer.as_uri()}" in done.stderr
    assert not (tmp_path / "root").exists()
