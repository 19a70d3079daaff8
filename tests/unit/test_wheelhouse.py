"""Stand-in distributions are real ones: pip installs them, and what pip reads of them is true."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder import wheelhouse
from builder.errors import StandInError
from builder.wheelhouse import Wheel, close, simple

if TYPE_CHECKING:
    from pathlib import Path

TORCH = Wheel(
    name="Torch-Memory.Saver",
    version="2.12.0+rocm7.14.0a20260608",
    files={"saver/__init__.py": b"loaded = True\n", "saver/empty.txt": b"", "saver/_C.so": bytes(range(256))},
    requires=["numpy<2", "triton==3.7.0; python_version >= '3.10'"],
    extras={"opt": ["optuna>=3"], "all": ["ray[default]"]},
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment without a pip of its own."""

    python: Path
    site: Path

    def pip(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "pip",
            "--isolated",
            "--disable-pip-version-check",
            "--python",
            str(self.python),
        ]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)

    def installed(self, name: str) -> metadata.Distribution:
        (found,) = metadata.distributions(name=name, path=[str(self.site)])
        return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return Environment(folder / "bin/python", next((folder / "lib").glob("python*/site-packages")))


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path


def required(*lines: str) -> list[Requirement]:
    return [Requirement(line) for line in lines]


def titles(wheels: list[Wheel]) -> list[str]:
    return sorted(f"{wheel.name}=={wheel.version}" for wheel in wheels)


# One archive


def test_pip_installs_it_and_its_record_is_true(environment: Environment, tmp_path: Path) -> None:
    path = TORCH.write(tmp_path)
    assert path.name == "torch_memory_saver-2.12.0+rocm7.14.0a20260608-py3-none-any.whl"
    done = environment.pip("install", "--no-index", "--no-deps", str(path))
    assert done.returncode == 0, done.stderr
    found = environment.installed("torch-memory-saver")
    assert found.version == TORCH.version
    rows = {str(file): file for file in found.files or []}
    assert set(TORCH.files) <= set(rows)
    for name, content in TORCH.files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        row = rows[name]
        assert row.hash is not None
        assert (row.hash.mode, row.hash.value, row.size) == ("sha256", digest, len(content))
        assert (environment.site / name).read_bytes() == content


def test_its_own_record_names_every_file_of_the_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(TORCH.write(tmp_path)) as archive:
        names = archive.namelist()
        record = archive.read(next(name for name in names if name.endswith("/RECORD"))).decode()
    assert sorted(row.split(",")[0] for row in record.splitlines()) == sorted(names)
    assert [row for row in record.splitlines() if row.endswith(",,")] == [record.splitlines()[-1]]


def test_what_it_requires_is_read_back(environment: Environment, tmp_path: Path) -> None:
    wheel = Wheel(name="asks", version="1.0", files={}, requires=TORCH.requires, extras=TORCH.extras)
    assert environment.pip("install", "--no-index", "--no-deps", str(wheel.write(tmp_path))).returncode == 0
    found = environment.installed("asks")
    assert found.metadata.get_all("Provides-Extra") == ["opt", "all"]
    wanted = [*TORCH.requires, 'optuna>=3; extra == "opt"', 'ray[default]; extra == "all"']
    assert [Requirement(line) for line in found.requires or []] == required(*wanted)


@pytest.mark.parametrize("as_source", [False, True], ids=["wheel", "source"])
def test_the_same_distribution_is_the_same_bytes_whenever_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_source: bool
) -> None:
    wheel = Wheel(name="same", version="1.0", files={"same.py": b"x = 1\n"}, as_source=as_source)
    written = []
    for name, now in [("a", 1_800_000_000.0), ("b", 1_900_000_000.0)]:
        monkeypatch.setattr(time, "time", lambda now=now: now)
        (tmp_path / name).mkdir()
        written.append(wheel.write(tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_a_source_archive_is_nothing_for_a_plan_of_wheels_only(environment: Environment, tmp_path: Path) -> None:
    path = Wheel(name="unjudged", version="1.0", files={}, as_source=True).write(tmp_path)
    with tarfile.open(path) as archive:
        assert sorted(archive.getnames()) == ["unjudged-1.0/PKG-INFO", "unjudged-1.0/setup.py"]
    done = environment.pip(
        "install", "--no-index", "--no-deps", "--only-binary=:all:", f"--find-links={tmp_path}", "unjudged"
    )
    assert done.returncode != 0


def test_a_source_archive_stops_whoever_builds_it(tmp_path: Path) -> None:
    path = Wheel(name="trap", version="1.0", files={}, as_source=True).write(tmp_path)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run([*command, f"--dest={tmp_path}/d", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "nobody has judged this code" in done.stdout + done.stderr


# The index


def test_every_link_of_the_index_has_the_digest_of_its_file(house: Path) -> None:
    for wheel in (
        TORCH,
        simple("plain", "1.0"),
        simple("plain", "2.0"),
        Wheel(name="a-b", version="1", files={}, as_source=True),
    ):
        wheel.write(house / "files")
    wheelhouse.write_index(house)
    pages = sorted((house / "simple").glob("*/index.html"))
    assert [page.parent.name for page in pages] == ["a-b", "plain", "torch-memory-saver"]
    linked = []
    for page in pages:
        for address, digest in re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', page.read_text(encoding="utf-8")):
            file = (page.parent / address).resolve()
            assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
            linked.append(file)
    assert sorted(linked) == sorted((house / "files").iterdir())


def test_pip_finds_the_newest_in_the_index(environment: Environment, house: Path) -> None:
    for version in ("1.9", "1.10+local.1"):
        simple("indexed", version).write(house / "files")
    wheelhouse.write_index(house)
    done = environment.pip(
        "install", "--no-deps", "--no-cache-dir", f"--index-url={(house / 'simple').as_uri()}", "indexed"
    )
    assert done.returncode == 0, done.stderr
    assert environment.installed("indexed").version == "1.10+local.1"


def test_pip_refuses_a_file_that_is_not_the_one_in_the_index(environment: Environment, house: Path) -> None:
    path = simple("tampered", "1.0").write(house / "files")
    wheelhouse.write_index(house)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("tampered/more.py", "")
    done = environment.pip(
        "install", "--no-deps", "--no-cache-dir", f"--index-url={(house / 'simple').as_uri()}", "tampered"
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


# The closure


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("a", "1.0"),
        ("a==1.26.4", "1.26.4"),
        ("a==1.26.*", "1.26"),
        ("a>=2", "2"),
        ("a>=2.10,<3", "2.10"),
        ("a<3,>=2,!=2.5", "2"),
        ("a>=2,>=2.5,>=2.4", "2.5"),
        ("a~=0.4", "0.4"),
        ("a<26", "1.0"),
        ("a<0.5", "0"),
        ("a!=1.0", "1.0.1"),
        ("a>2", "2.1"),
        ("a>=2,!=2", "2.1"),
        ("a>=2.0rc1", "2.0rc1"),
        ("a>1,!=1.*", "2"),
        ("a==2.12.0+rocm7.14", "2.12.0+rocm7.14"),
    ],
)
def test_what_is_missing_is_made_in_the_lowest_version_that_is_named_and_allowed(line: str, version: str) -> None:
    assert titles(close([], {}, required(line))) == [f"a=={version}"]


clauses = st.tuples(
    st.sampled_from([">=", ">", "<", "<=", "==", "!=", "~="]), st.from_regex(r"[0-9]\.[0-9]{1,2}", fullmatch=True)
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(clauses, max_size=3))
def test_what_is_made_is_allowed_or_the_requirement_is_named(parts: list[tuple[str, str]]) -> None:
    requirement = Requirement("a" + ",".join(map("".join, parts)))
    try:
        (made,) = close([], {}, [requirement])
    except StandInError as error:
        assert str(requirement) in str(error)  # noqa: PT017 - both ends are good ones
        grid = [f"{major}.{minor}" for major in range(11) for minor in range(0, 101, 5)]
        assert not list(requirement.specifier.filter(grid))
        return
    assert SpecifierSet(str(requirement.specifier)).contains(made.version, prereleases=True)


def test_what_the_base_or_the_house_has_is_not_made_again() -> None:
    house = [simple("Ray_Core", "2.5")]
    assert close(house, {"numpy": "1.26.4"}, required("numpy<2", "ray-core>=2", "RAY.core")) == house


def test_what_is_there_in_another_version_is_made_too() -> None:
    assert titles(close([simple("a", "1.0")], {"b": "1.0"}, required("a>=2", "b>=2"))) == ["a==1.0", "a==2", "b==2"]


def test_what_a_requirement_requires_is_made() -> None:
    a = Wheel(name="a", version="1.0", files={}, requires=["b>=2", "c"])
    assert titles(close([a], {}, required("a"))) == ["a==1.0", "b==2", "c==1.0"]


def test_what_nobody_asks_for_asks_for_nothing() -> None:
    a = Wheel(name="a", version="1.0", files={}, requires=["b"])
    assert close([a], {}, []) == [a]


def test_an_extra_counts_only_where_it_is_asked_for() -> None:
    a = Wheel(name="a", version="1.0", files={}, extras={"x": ["b"], "y": ["c", "a[x]"]})
    assert titles(close([a], {}, required("a"))) == ["a==1.0"]
    assert titles(close([a], {}, required("a", "a[x]"))) == ["a==1.0", "b==1.0"]
    assert titles(close([a], {}, required("a[y,none]"))) == ["a==1.0", "b==1.0", "c==1.0"]


def test_a_cycle_ends() -> None:
    a = Wheel(name="a", version="1.0", files={}, requires=["b"], extras={"x": ["a[x]"]})
    b = Wheel(name="b", version="1.0", files={}, requires=["a[x]", "b"])
    assert close([a, b], {}, required("a", "b")) == [a, b]


def test_pip_resolves_what_was_closed(environment: Environment, house: Path) -> None:
    a = Wheel(name="a", version="1.0", files={}, requires=["b[x]>1", "c!=1.0"], extras={"x": ["e"]})
    b = Wheel(name="b", version="1.5", files={}, extras={"x": ["d<0.3"]})
    for wheel in close([a, b], {}, required("a[x]")):
        wheel.write(house / "files")
    wheelhouse.write_index(house)
    index = f"--index-url={(house / 'simple').as_uri()}"
    done = environment.pip("install", "--dry-run", "--no-cache-dir", index, "a[x]")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Would install a-1\.0 b-1\.5 c-1\.0\.1 d-0 e-1\.0$", done.stdout, re.MULTILINE)


def test_a_made_up_distribution_is_one_module_of_its_name() -> None:
    assert simple("flash-linear.Attention", "0.4.2").files == {
        "flash_linear_attention/__init__.py": b'__version__ = "0.4.2"\n'
    }
