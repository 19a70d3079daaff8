"""hadolint has nothing to say of a generated file but what .hadolint.yaml leaves out, with its reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from manifests import EVERY, ROOT, rendered

HADOLINT = Path(sys.executable).parent / "hadolint"
CONFIGURATION = ROOT / ".hadolint.yaml"
COMMITTED = sorted((ROOT / "dockerfiles").iterdir())
IGNORED: list[str] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))["ignored"]

pytestmark = pytest.mark.skipif(not HADOLINT.is_file(), reason="hadolint is not installed: make check installs it")


def said_of(text: str, configuration: Path) -> list[str]:
    command = [str(HADOLINT), "--no-color", "--config", str(configuration), "-"]
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode in {0, 1}, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert (done.returncode == 0) == (not lines)
    return lines


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_committed_dockerfile_passes(path: Path) -> None:
    assert said_of(path.read_text(encoding="utf-8"), CONFIGURATION) == []


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_every_manifest_renders_to_what_passes(path: Path) -> None:
    assert said_of(rendered(path), CONFIGURATION) == []


def test_a_fault_is_found() -> None:
    assert said_of("FROM debian\nRUN cd /x && ls $y\n", CONFIGURATION) != []


def test_every_rule_that_is_left_out_is_still_broken(tmp_path: Path) -> None:
    empty = tmp_path / "hadolint.yaml"
    empty.write_text("ignored: []\n", encoding="utf-8")
    said = " ".join(line for path in COMMITTED for line in said_of(path.read_text(encoding="utf-8"), empty))
    assert [rule for rule in IGNORED if rule not in said] == []


def test_every_rule_that_is_left_out_has_its_reason() -> None:
    lines = CONFIGURATION.read_text(encoding="utf-8").splitlines()
    for rule in IGNORED:
        above = lines[: lines.index(f"  - {rule}")]
        while above[-1].startswith("  - "):  # rules that share a reason stand together
            above.pop()
        assert above[-1].startswith("  # ")
