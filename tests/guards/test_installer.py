"""What uv installs of a judged plan is what pip would have installed, and nothing that pip would have refused."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import wheels
from test_judge import INDEX, Step
from test_traps import CACHE
from trapping import FACTS, MANIFEST, ROOT
from traps import source
from wheels import BASE, SEALED, Wheel

from builder import lists, stock
from builder.inside import installer

WITH_UV = {"installer": lists.policy(MANIFEST)["installer"]}
# Each has something of its own: scripts, data, compiled modules, namespaces, many files, a second top-level name.
REAL = (
    "click==8.1.8",
    "markupsafe==3.0.3",
    "pyyaml==6.0.3",
    "jsonschema==4.25.1",
    "zope.interface==8.0.1",
    "tqdm==4.67.1",
)
MADE = (
    Wheel("plain", "2.0", (), {"plain/__init__.py": "", "plain/later.py": "match = 1\n", "plain/broken.py": "def f(:\n"}),
    Wheel("placed", "1.0", (), {
        "placed/__init__.py": "",
        "placed-1.0.data/purelib/placed_more/__init__.py": "",
        "placed-1.0.data/data/share/placed/note.txt": "",
        "placed-1.0.data/scripts/placed-script": "#!python\nprint(1)\n",
        "placed-1.0.dist-info/entry_points.txt": "[console_scripts]\nplaced = placed:main\n",
    }),
)  # fmt: skip


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index with the wheels of the judge's tests, others of our making, and real ones of this machine's index."""
    folder = tmp_path_factory.mktemp("index")
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--dest", str(folder / "files")]
    subprocess.run([*command, *REAL], check=True, capture_output=True)
    for path in stock.tools(MANIFEST, FACTS, ROOT / ".cache"):
        shutil.copy(path, folder / "files")
    source("built", "").write(folder / "files")
    return wheels.index(folder, [*(wheel for wheel in INDEX if wheel.name != "plain"), *MADE])


@pytest.fixture
def step(tmp_path: Path, index: str) -> Callable[[str], Step]:
    """Makes an environment by a name, sealed, whose pip asks that index."""

    def make(name: str) -> Step:
        (tmp_path / name).mkdir()
        image = wheels.image(tmp_path / name, wheels.pip_files(CACHE, "newest"), BASE)
        image.write("pip.conf", f"[global]\nindex-url = {index}\n")
        assert image.run("seal", "create", *SEALED).returncode == 0
        return Step(image)

    return make


def distributions(site: Path) -> dict[str, Any]:
    """Of every distribution its metadata and what its RECORD lists, but for what names the installer."""
    found = {}
    for info in sorted(site.glob("*.dist-info")):
        with (info / "RECORD").open(encoding="utf-8", newline="") as file:
            rows = {row[0]: row[1] for row in csv.reader(file) if not row[0].endswith(".pyc")}
        own = {"INSTALLER", "RECORD", "uv_cache.json"}
        kept = {path: digest for path, digest in rows.items() if Path(path).name not in own}
        scripts = [path for path in kept if path.startswith("../") and "/bin/" in path]
        found[info.name] = {
            "files": {path: digest for path, digest in kept.items() if path not in scripts},
            "scripts": sorted(scripts),
            "entry points": (info / "entry_points.txt").read_text() if (info / "entry_points.txt").exists() else "",
            "metadata": (info / "METADATA").read_bytes(),
        }
    return found


def files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for folder in ("bin", "lib", "share")
        for path in (root / folder).rglob("*")
        if path.is_file() and path.name not in {"INSTALLER", "uv_cache.json"} and "/pip/" not in str(path)
    }


def test_uv_installs_what_pip_installs(step: Callable[[str], Step]) -> None:
    lines = "\n".join([*REAL, "plain>=2", "placed", "clean", "opencv", "numpy", "pyjwt"]) + "\n"
    by_pip, by_uv = step("one"), step("other")
    for made, policy in ((by_pip, {}), (by_uv, WITH_UV)):
        assert len(made.install(lines, policy=policy)) > len(REAL) + 5
    assert {read(by_pip, "INSTALLER"), read(by_uv, "INSTALLER")} == {"pip", "uv"}
    assert distributions(by_uv.image.site) == distributions(by_pip.image.site)
    venvs = [made.image.site.parents[2] for made in (by_pip, by_uv)]
    assert files(venvs[1]) == files(venvs[0]), "bytecode too"
    for venv in venvs:
        done = subprocess.run([venv / "bin" / "tqdm", "--version"], capture_output=True, check=True, text=True)
        assert done.stdout == "4.67.1\n"
    assert by_pip.image.read("plans/VLLM.json") == by_uv.image.read("plans/VLLM.json")


def test_bytecode_that_was_kept_is_what_would_be_compiled(step: Callable[[str], Step], tmp_path: Path) -> None:
    made, cache = step("made"), tmp_path / "cache"
    lines = "\n".join([*REAL, "plain>=2", "placed"]) + "\n"
    codes, kept = [], []
    for _ in range(2):
        plan = made.install(lines, policy=WITH_UV, XDG_CACHE_HOME=str(cache))
        found = {path: path.read_bytes() for path in made.image.site.rglob("*.pyc") if "/pip/" not in str(path)}
        for path, code in found.items():
            source = Path(importlib.util.source_from_cache(str(path))).stat()
            assert struct.unpack("<3I", code[4:16]) == (0, int(source.st_mtime), source.st_size)
        codes.append({path: (code[:4], code[16:]) for path, code in found.items()})
        kept.append({path.name: path.stat().st_mtime_ns for path in (cache / "uv" / "bytecode").iterdir()})
        assert made.image.start("-m", "pip", "uninstall", "--yes", *plan).returncode == 0
        assert not made.image.version("click")
        time.sleep(1.1)  # another time of the sources
        assert len(kept[0]) == len(plan)
    assert kept[1] == kept[0], "nothing was compiled again"
    assert codes[1] == codes[0]
    assert len(codes[0]) > 100


def test_kept_bytecode_that_is_damaged_is_compiled_again(step: Callable[[str], Step], tmp_path: Path) -> None:
    made, cache = step("made"), tmp_path / "cache"
    for _ in range(2):
        made.install("placed\n", policy=WITH_UV, XDG_CACHE_HOME=str(cache))
        assert list((made.image.site / "placed" / "__pycache__").glob("*.pyc"))
        (kept,) = (cache / "uv" / "bytecode").iterdir()
        whole = kept.read_bytes()
        assert len(whole) > 100, "kept again"
        kept.write_bytes(whole[:50])
        assert made.image.start("-m", "pip", "uninstall", "--yes", "placed").returncode == 0


def read(made: Step, name: str, of: str = "click-8.1.8") -> str:
    return (made.image.site / f"{of}.dist-info" / name).read_text().strip()


def test_a_declared_build_is_for_pip_and_the_rest_for_uv(step: Callable[[str], Step]) -> None:
    made, policy = step("mixed"), {**WITH_UV, "source_builds": ["Built"]}
    assert made.install("built\nclick==8.1.8\n", policy=policy) == {"built": "1.0", "click": "8.1.8"}
    assert (read(made, "INSTALLER", "built-1.0"), read(made, "INSTALLER")) == ("pip", "uv")


def test_uv_replaces_what_pip_has_installed_and_leaves_nothing_of_it(step: Callable[[str], Step]) -> None:
    made = step("both")
    made.install("helper\n")
    older = made.image.site / "helper-1.5.dist-info"
    shutil.move(older, older.with_name("helper-1.0.dist-info"))
    older = older.with_name("helper-1.0.dist-info")
    for name in ("METADATA", "RECORD"):
        text = (older / name).read_text().replace("1.5", "1.0")
        (older / name).write_text(text + ("helper/gone.py,,\n" if name == "RECORD" else ""))
    (made.image.site / "helper" / "gone.py").write_text("")
    assert made.install("helper>=1.5\n", policy=WITH_UV) == {"helper": "1.5"}
    assert not older.exists()
    assert not (made.image.site / "helper" / "gone.py").exists()


def test_uv_leaves_nothing_else_behind(step: Callable[[str], Step]) -> None:
    made = step("uv")
    made.install("helper\n", policy=WITH_UV)
    assert made.image.version("uv") is None
    assert not list(made.image.site.parents[2].rglob("uv"))


def test_a_sealed_module_is_found_before_uv_installs_anything(step: Callable[[str], Step]) -> None:
    made = step("uv")
    told = made.refusal("helper\nfast-triton\n", policy=WITH_UV)
    assert "fast-triton 1.0 brings files of the sealed triton under another name" in told
    assert made.image.version("helper") is None


def test_other_bytes_than_the_judged_ones_are_not_installed(step: Callable[[str], Step]) -> None:
    made = step("uv")
    made.judge("plain\n", policy=WITH_UV)
    code = (
        "import judge, pathlib, sys, tempfile\n"
        "found = judge.Judge(pathlib.Path(sys.argv[1]), 'VLLM', pathlib.Path(tempfile.mkdtemp()))\n"
        "found.install_exactly([judge.Item('helper', '1.5', '', '0' * 64, [])])"
    )
    done = made.image.start("-c", code, str(made.image.root), PYTHONPATH=str(wheels.INSIDE))
    assert "uv did not fetch the judged plan" in done.stderr
    assert "Hash mismatch" in done.stderr
    assert made.image.version("helper") is None


def test_an_installer_that_cannot_be_had_is_told_with_the_line_to_change(step: Callable[[str], Step]) -> None:
    wrong = {"installer": {"uv": {"version": "0.0.1", "sha256": "0" * 64}}}
    told = step("uv").refusal("helper\n", policy=wrong)
    assert "the installer cannot be had\n    change images/x.yaml, installer.uv, or leave it out" in told


@pytest.mark.parametrize(
    ("pip", "uv"),
    [
        ({"PIP_INDEX_URL": "https://a.invalid/simple"}, {"UV_DEFAULT_INDEX": "https://a.invalid/simple"}),
        ({"PIP_CERT": "/a.pem", "REQUESTS_CA_BUNDLE": "/b.pem"}, {"SSL_CERT_FILE": "/a.pem"}),
        ({"REQUESTS_CA_BUNDLE": "/b.pem"}, {"SSL_CERT_FILE": "/b.pem"}),
        ({"PIP_PROXY": "http://p:1"}, {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1"}),
        ({"PIP_TRUSTED_HOST": "a b:8"}, {"UV_INSECURE_HOST": "a,b:8"}),
        ({"PIP_FIND_LINKS": "/w file:///x"}, {"UV_FIND_LINKS": "/w,file:///x"}),
        ({"PIP_DEFAULT_TIMEOUT": "60"}, {"UV_HTTP_TIMEOUT": "60"}),
        ({"PIP_TIMEOUT": "60"}, {"UV_HTTP_TIMEOUT": "60"}),
        ({"PIP_CLIENT_CERT": "/c.pem"}, {"SSL_CLIENT_CERT": "/c.pem"}),
        ({"PIP_NO_INDEX": "1"}, {"UV_NO_INDEX": "1"}),
        ({"PIP_RETRIES": "9"}, {"UV_HTTP_RETRIES": "9"}),
        ({"PIP_KEYRING_PROVIDER": "disabled"}, {"UV_KEYRING_PROVIDER": "disabled"}),
    ],
    ids="-".join,
)
def test_uv_reaches_packages_as_pip_does(pip: Mapping[str, str], uv: Mapping[str, str]) -> None:
    made = installer.environment({"PATH": os.environ["PATH"], **pip})
    assert uv.items() <= made.items()
    assert not [name for name in made if name.startswith("PIP_")]


def test_the_manifest_pins_the_installer_by_its_hash() -> None:
    pinned: Any = json.loads(json.dumps(WITH_UV))["installer"]["uv"]
    assert re.fullmatch("[0-9a-f]{64}", pinned["sha256"])
