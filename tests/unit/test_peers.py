"""A peer that cannot be had, or stops doing its work, hides no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import command, peers
from benchmarks.command import Rival
from benchmarks.peers import Peer

ONCE = "#!/bin/sh\ntest ! -e done || { echo it is there already >&2; exit 3; }\ntouch done\n"
ALWAYS = "#!/bin/sh\ncat greeting\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(peers, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def rival(cache: Path, name: str, script: str) -> Rival:
    """A peer that is installed already: a script."""
    program = cache / name / "bin" / "work"
    program.parent.mkdir(parents=True)
    program.write_text(script, "utf-8")
    program.chmod(0o755)
    (cache / name / "packages.txt").write_text("work==1", "utf-8")
    return Rival(
        name, Peer(packages=["work==1"], command="work", files={"greeting": "hello\n"}), cache / f"{name}-folder"
    )


def test_a_peer_that_fails_at_its_second_run_says_why_and_is_not_asked_again(cache: Path) -> None:
    found = rival(cache, "once", ONCE)
    assert found.tried()
    found()
    assert "exit 3 it is there already" in found.fault
    (cache / "once-folder" / "done").unlink()
    found()
    assert not (cache / "once-folder" / "done").exists()


def test_a_peer_that_no_index_has_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri())
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    found = Rival("absent", Peer(packages=["no-such-peer==1"], command="work"), cache / "folder")
    assert found.tried() is None
    assert found.fault.startswith("pip cannot install no-such-peer==1: ")


def test_what_could_not_be_measured_has_a_row_and_a_target_beside_the_others(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = rival(cache, "good", ALWAYS), rival(cache, "bad", "#!/bin/sh\nexit 1\n")
    assert (bool(good.tried()), bad.tried()) == (True, None)
    spent = {name: [1.0, 1.0] for name in (command.OURS, command.BARE, command.USED)} | {"good": [2.0, 2.0]}
    command.report({"good": good, "bad": bad}, spent)
    told = json.loads(capsys.readouterr().out)
    rows = {name: figures for name, *figures in told["rows"]}
    assert rows["good"][:3] == [2.0, 2.0, 2.0]
    assert rows["bad"] == [None, None, None, f"could not be measured: {bad.fault}"]
    values = {target["what"]: target["value"] for target in told["targets"]}
    assert (values["good against ours"], values["bad against ours"]) == (2.0, None)
