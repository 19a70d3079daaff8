"""Repositories asked by real git, on loopback: each refusal is told from the others."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from manifests import ROOT
from sleepers import read, within
from world import Repository, repository, settings

from builder import git
from builder.git import GitError

ADDRESS = "https://example.org/someone/thing"


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = repository(tmp_path / "origin")
    made.commit({"a.txt": "one\n"}, tag="v1")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings({ADDRESS: f"file://{made.folder}"}, tmp_path / "gitconfig")))
    monkeypatch.setattr(git, "PAUSE_S", 0)
    return made


def fetched(tmp_path: Path, commit: str, tag: str | None = None, *, offline: bool = False) -> Path:
    with git.repository(tmp_path / "cache", ADDRESS) as held:
        git.fetch(held, ADDRESS, commit, tag, offline=offline)
        return git.tree(held, commit)


def taken(lock: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def refusal(address: str, **options: float) -> GitError:
    with pytest.raises(GitError) as caught:
        git.references(address, **options)
    assert address in caught.value.hint or caught.value.why in {"refuses commits", "no access"}
    return caught.value


def test_an_annotated_tag_is_the_commit_behind_it(origin: Repository) -> None:
    found = git.references(ADDRESS)
    commit = origin.git("rev-parse", "v1^{commit}")
    assert commit != origin.git("rev-parse", "v1")
    assert (found.tag("v1"), found.named("main"), found.tag("v2")) == (commit, commit, None)


def test_files_of_a_commit_go_when_nobody_has_asked_for_them_for_a_month(origin: Repository, tmp_path: Path) -> None:
    first = origin.git("rev-parse", "HEAD")
    old, new = fetched(tmp_path, first), fetched(tmp_path, second := origin.commit({"a.txt": "two\n"}))
    os.utime(old, (0, 0))
    assert (fetched(tmp_path, second), old.exists(), new.exists()) == (new, False, True)
    assert (fetched(tmp_path, first, offline=True) / "a.txt").is_file(), "it is written again"


def test_a_commit_is_fetched_by_its_tag_or_alone_and_once(origin: Repository, tmp_path: Path) -> None:
    first = origin.git("rev-parse", "HEAD")
    second = origin.commit({"a.txt": "two\n"})
    assert (fetched(tmp_path, first, "v1") / "a.txt").read_text() == "one\n"
    assert (fetched(tmp_path, second) / "a.txt").read_text() == "two\n"
    origin.git("config", "uploadpack.allowAnySHA1InWant", "false")
    origin.folder.rename(tmp_path / "gone")
    assert (fetched(tmp_path, first, offline=True) / "a.txt").is_file(), "what is in the cache is asked of nobody"


def test_the_files_of_a_commit_are_written_once_and_never_half(origin: Repository, tmp_path: Path) -> None:
    commit = origin.git("rev-parse", "HEAD")
    first = fetched(tmp_path, commit)
    (first / "mark").touch()
    assert (fetched(tmp_path, commit) / "mark").is_file()
    half = fetched(tmp_path, origin.commit({"b.txt": "two\n"}))
    half.rename(half.with_name("unfinished"))
    (half.with_name("unfinished") / "left").touch()
    again = fetched(tmp_path, half.name)
    assert sorted(path.name for path in again.iterdir()) == ["a.txt", "b.txt"]


def test_a_tag_that_is_another_commit_is_not_taken(origin: Repository, tmp_path: Path) -> None:
    origin.commit({"a.txt": "moved\n"}, tag="v1")
    with pytest.raises(GitError, match="no commit"):
        fetched(tmp_path, "1" * 40, "v1")


def test_an_orphaned_commit_can_be_had_while_the_server_keeps_it(origin: Repository, tmp_path: Path) -> None:
    orphan = origin.commit({"a.txt": "orphan\n"})
    origin.git("reset", "--hard", "--quiet", "HEAD~1")
    assert orphan not in git.references(ADDRESS).commits.values()
    assert (fetched(tmp_path, orphan) / "a.txt").read_text() == "orphan\n"


def test_a_server_that_refuses_commits_is_told_from_one_that_lacks_it(
    origin: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = origin.commit({"a.txt": "orphan\n"})
    origin.git("reset", "--hard", "--quiet", "HEAD~1")
    origin.git("config", "uploadpack.allowAnySHA1InWant", "false")
    places = {ADDRESS: f"file://{origin.folder}"}
    extra = "[protocol]\n\tversion = 0\n"  # the newer protocol serves any commit
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings(places, tmp_path / "old", extra)))
    with pytest.raises(GitError) as caught:
        fetched(tmp_path, orphan)
    assert caught.value.why == "refuses commits"


# What a git leaves that was killed


@pytest.mark.parametrize(
    "left", ["shallow", "config", "HEAD", "packed-refs", "objects/info/commit-graph", "refs/vime/COMMIT", "TREES/index"]
)
def test_a_lock_that_a_killed_git_has_left_is_in_nobody_s_way(origin: Repository, tmp_path: Path, left: str) -> None:
    fetched(tmp_path, origin.git("rev-parse", "HEAD"))
    commit = origin.commit({"a.txt": "two\n"})
    (folder,) = (tmp_path / "cache/git").glob("*.git")
    place = folder / left.replace("COMMIT", commit).replace("TREES", str(folder.with_suffix(".trees")))
    lock = place.with_name(f"{place.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    assert (fetched(tmp_path, commit) / "a.txt").read_text() == "two\n"
    assert not lock.exists()


@pytest.mark.parametrize(
    "made", [[], ["HEAD"], ["HEAD", "config", "refs"]], ids=lambda made: " ".join(made) or "nothing"
)
def test_a_repository_whose_beginning_was_killed_is_begun_again(
    origin: Repository, tmp_path: Path, made: list[str]
) -> None:
    commit = origin.git("rev-parse", "HEAD")
    fetched(tmp_path, commit)
    (folder,) = (tmp_path / "cache/git").glob("*.git")
    for path in folder.iterdir():
        if path.name not in made:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(folder.with_suffix(".trees"))
    shutil.copytree(folder, folder.with_suffix(".unfinished"))
    assert (fetched(tmp_path, commit) / "a.txt").read_text() == "one\n"


def test_a_commit_whose_files_a_killed_fetch_has_not_brought_is_fetched_again(
    origin: Repository, tmp_path: Path
) -> None:
    """Of a small fetch git writes one object after the other, the commit first; the reference comes last."""
    commit = origin.git("rev-parse", "HEAD")
    fetched(tmp_path, commit)
    (folder,) = (tmp_path / "cache/git").glob("*.git")
    blob = origin.git("rev-parse", "HEAD:a.txt")
    (folder / "objects" / blob[:2] / blob[2:]).unlink()
    (folder / "refs/vime" / commit).unlink()
    shutil.rmtree(folder.with_suffix(".trees"))
    assert (fetched(tmp_path, commit) / "a.txt").read_text() == "one\n"


@pytest.mark.usefixtures("origin")
def test_a_git_that_outlives_its_process_still_has_the_repository_to_itself(tmp_path: Path) -> None:
    """What it locks would otherwise be taken for what a killed one has left."""
    with answering(0) as (address, handler):
        program = (
            "import sys, pathlib; from builder import git; place, address = sys.argv[1:]\n"
            "with git.repository(pathlib.Path(place), address) as held: git.fetch(held, address, '1' * 40, None, offline=False)"
        )
        with subprocess.Popen([sys.executable, "-c", program, str(tmp_path), address], cwd=ROOT) as process:
            assert within(20, lambda: handler.asked)
            process.send_signal(signal.SIGKILL)
        (path,) = (tmp_path / "git").glob("*.lock")
        with path.open() as lock:
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for git_of_it in Path("/proc").glob("[0-9]*/cmdline"):
                if address.encode() in read(git_of_it):
                    os.kill(int(git_of_it.parent.name), signal.SIGKILL)
            assert within(5, lambda: taken(lock.fileno()))


@pytest.mark.usefixtures("origin")
def test_a_commit_that_is_nowhere_is_said_to_be_nowhere(tmp_path: Path) -> None:
    with pytest.raises(GitError) as caught:
        fetched(tmp_path, "1" * 40)
    assert caught.value.why == "no commit"
    with pytest.raises(GitError, match="--offline asks nobody"):
        fetched(tmp_path, "2" * 40, offline=True)


@pytest.mark.usefixtures("origin")
def test_no_repository_is_told_from_no_host(tmp_path: Path) -> None:
    assert refusal(f"file://{tmp_path}/nothing").why == "no repository"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert refusal(f"http://127.0.0.1:{port}/x").why == "unreachable"


class Answer(http.server.BaseHTTPRequestHandler):
    """Always the same status; counts how often it was asked."""

    status = 500
    asked = 0

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        type(self).asked += 1
        if not self.status:
            time.sleep(30)
        self.send_response(self.status)
        if self.status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def answering(status: int) -> Iterator[tuple[str, type[Answer]]]:
    handler = type("Handler", (Answer,), {"status": status, "asked": 0})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/x", handler
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.usefixtures("origin")
@pytest.mark.parametrize(
    ("status", "why", "times"),
    [(401, "no access", 2), (403, "no access", 1), (404, "no repository", 1), (503, "unreachable", 3)],
)
def test_a_server_s_refusal_has_its_kind_and_only_a_dying_one_is_asked_again(status: int, why: str, times: int) -> None:
    with answering(status) as (address, handler):
        assert refusal(address).why == why
    assert handler.asked == times


@pytest.mark.usefixtures("origin")
def test_a_server_that_never_answers_is_given_up() -> None:
    with answering(0) as (address, _):
        assert "no answer within 1 s" in str(refusal(address, time_limit_s=1))


def test_many_at_once_share_a_cache(origin: Repository, tmp_path: Path) -> None:
    commits = [origin.commit({"a.txt": f"{number}\n"}) for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        trees = list(pool.map(lambda commit: fetched(tmp_path, commit), commits))
    assert [(tree / "a.txt").read_text() for tree in trees] == [f"{number}\n" for number in range(6)]


def test_a_link_that_leads_out_of_a_tree_is_no_part_of_it(origin: Repository, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("machine example.org password canary\n")
    (origin.folder / "requirements.txt").symlink_to(tmp_path / "secret")
    (origin.folder / "inside.txt").symlink_to("a.txt")
    commit = origin.commit({"b.txt": "two\n"})
    tree = fetched(tmp_path, commit)
    assert sorted(path.name for path in tree.iterdir()) == ["a.txt", "b.txt", "inside.txt"]
