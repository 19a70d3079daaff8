"""Stand-in wheels and their index, with real pip."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from builder import wheelhouse
from builder.wheelhouse import Wheel

DEMO = Wheel(
    name="Demo_Kit",
    version="1.2+rocm7",
    files={"demo_kit/__init__.py": b"x = 1\n"},
    requires=["other>=2"],
    extras={"fast": ["quick"]},
)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    (folder / "files").mkdir(parents=True)
    for wheel in (DEMO, wheelhouse.simple("other", "2.0"), wheelhouse.simple("quick", "1.0")):
        wheel.write(folder / "files")
    wheelhouse.write_index(folder)
    return folder


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_pip_installs_a_wheel_with_its_requirements_from_the_index(index: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ("--dry-run", "--ignore-installed", f"--report={report}", f"--index-url={index.as_uri()}/simple")
    done = pip("install", *options, "demo-kit[fast]")
    assert done.returncode == 0, done.stderr
    found = {
        item["metadata"]["name"]: item["metadata"]["version"] for item in json.loads(report.read_text())["install"]
    }
    assert found == {"Demo_Kit": "1.2+rocm7", "other": "2.0", "quick": "1.0"}


def test_record_names_every_file_with_its_hash(tmp_path: Path) -> None:
    target = tmp_path / "target"
    done = pip("install", "--no-deps", "--no-index", f"--target={target}", str(DEMO.write(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert (target / "demo_kit/__init__.py").read_bytes() == b"x = 1\n"
    assert (target / "demo_kit-1.2+rocm7.dist-info/RECORD").exists()


def test_the_same_wheel_has_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    assert DEMO.write(first).read_bytes() == DEMO.write(second).read_bytes()


def test_each_page_of_the_index_has_the_hashes_of_its_files(index: Path) -> None:
    page = (index / "simple/demo-kit/index.html").read_text()
    ((name, digest),) = re.findall(r'href="../../files/([^#]+)#sha256=([0-9a-f]{64})"', page)
    assert hashlib.sha256((index / "files" / name).read_bytes()).hexdigest() == digest


def closed(*asked: str, installed: dict[str, str] | None = None, wheels: tuple[Wheel, ...] = ()) -> dict[str, str]:
    house = wheelhouse.close(wheels, installed or {}, [Requirement(text) for text in asked])
    return {wheel.name: wheel.version for wheel in house}


@pytest.mark.parametrize(
    ("asked", "version"),
    [("a", "1.0"), ("a==2.3", "2.3"), ("a>=4.1,<5", "4.1"), ("a~=1.9.0", "1.9.0"), ("a==0.8.*", "0.8")],
)
def test_a_requirement_that_nothing_satisfies_gets_the_lowest_version_that_it_allows(asked: str, version: str) -> None:
    assert closed(asked) == {"a": version}


def test_what_is_installed_or_in_the_house_is_not_made_again() -> None:
    wheel = Wheel(name="b", version="2.0", files={}, requires=["c>=3", "a"])
    assert closed("a>=1", "b", installed={"a": "1.5"}, wheels=(wheel,)) == {"b": "2.0", "c": "3"}


def test_extras_bring_their_requirements_and_circles_end() -> None:
    wheel = Wheel(name="b", version="2.0", files={}, requires=["b[fast]"], extras={"fast": ["quick"]})
    assert closed("b[fast]", wheels=(wheel,)) == {"b": "2.0", "quick": "1.0"}


def test_a_source_archive_stops_whoever_builds_it(tmp_path: Path) -> None:
    path = Wheel(name="trap", version="1.0", files={}, as_source=True).write(tmp_path)
    done = pip("download", "--no-deps", "--no-index", "--no-build-isolation", f"--dest={tmp_path}/d", str(path))
    assert done.returncode != 0
    assert "nobody has judged this code" in done.stdout + done.stderr
