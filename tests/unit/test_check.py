"""The check program, run as the image runs it, in small worlds that are right or wrong in one thing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wheels import Wheel, index

INSIDE = Path(__file__).parents[2] / "builder" / "inside"
PROGRAM = INSIDE / "check.py"


class World:
    """A root folder, modules on the path, and the program."""

    def __init__(self, folder: Path) -> None:
        self.root, self.modules = folder / "root", folder / "modules"
        self.root.mkdir()
        self.modules.mkdir()
        self.list = self.root / "checks.json"
        self.result = self.root / "verification.json"
        self.write("seal.json", {"schema": 1, "distributions": {}, "pip_check": []})

    def write(self, name: str, value: object) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PROGRAM), arguments[0], str(self.list), "--root", str(self.root), *arguments[1:]]
        variables = os.environ | {"PYTHONPATH": str(self.modules)} | environment
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    def check(self, *checks: dict[str, Any], **environment: str) -> list[dict[str, Any]]:
        """The outcomes of some checks."""
        named = [{"name": f"check {number}", "hint": "change it", **check} for number, check in enumerate(checks)]
        self.write("checks.json", {"schema": 1, "image": "demo", "python": sys.executable, "checks": named})
        done = self.run("run", "--output", str(self.result), **environment)
        found = list(json.loads(self.result.read_text())["checks"])
        assert done.returncode == int(any(check["outcome"] == "failed" for check in found)), done.stderr
        return found

    def outcome(self, check: dict[str, Any], **environment: str) -> tuple[str, str]:
        (found,) = self.check(check, **environment)
        return found["outcome"], found["detail"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def module(world: World, name: str, text: str) -> None:
    path = world.modules / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


ENV = {"kind": "env", "variable": "DEMO", "value": "1"}


def test_the_first_line_counts_all_three_outcomes(world: World) -> None:
    module(world, "nogpu.py", "raise RuntimeError('No HIP GPUs are available')")
    world.check(ENV, {**ENV, "value": "2"}, {"kind": "import", "module": "nogpu", "under": None}, DEMO="1")
    done = world.run("run", DEMO="1")
    assert done.stdout.splitlines()[0] == "checks: 1 passed, 1 failed, 1 could not run"


@pytest.mark.parametrize(
    ("value", "environment", "outcome"),
    [
        ("1", {"DEMO": "1"}, "passed"),
        ("1", {"DEMO": "2"}, "failed"),
        ("1", {}, "failed"),
        (None, {}, "passed"),
        (None, {"DEMO": ""}, "failed"),
    ],
)
def test_a_variable_is_as_declared_or_absent(
    world: World, value: str | None, environment: dict[str, str], outcome: str
) -> None:
    assert world.outcome({**ENV, "value": value}, **environment)[0] == outcome


def test_a_dropped_variable_is_seen_as_python_sees_it(world: World) -> None:
    """What a `.pth` line removes at interpreter start is absent, though the container has it."""
    module(world, "sitecustomize.py", "import os; os.environ.pop('DEMO', None)")
    assert world.outcome({**ENV, "value": None}, DEMO="0")[0] == "passed"


@pytest.mark.parametrize(
    ("text", "outcome", "detail"),
    [
        ("X = 1", "passed", "demo.py"),
        ("import nothing_such", "failed", "ModuleNotFoundError: No module named 'nothing_such'"),
        ("raise ImportError('libx.so: version `GLIBCXX_3.4.31\\' not found')", "failed", "GLIBCXX_3.4.31"),
        ("raise RuntimeError('No HIP GPUs are available')", "could not run", "No HIP GPUs"),
        ("import os; os._exit(3)", "failed", "exit code 3"),
        ("import os; os.abort()", "failed", "exit code -6"),
    ],
)
def test_an_import_is_tried_in_a_process_of_its_own(world: World, text: str, outcome: str, detail: str) -> None:
    module(world, "demo.py", text)
    found = world.check({"kind": "import", "module": "demo", "under": None}, {**ENV, "value": None})
    assert (found[0]["outcome"], found[1]["outcome"]) == (outcome, "passed")
    assert detail in found[0]["detail"]


def test_a_hanging_import_fails_alone(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in INSIDE.glob("[a-z]*.py"):
        (tmp_path / path.name).write_text(path.read_text().replace("TIME_LIMIT_S = 120", "TIME_LIMIT_S = 1"))
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", tmp_path / "check.py")
    module(world, "demo.py", "import time; time.sleep(60)")
    found = world.check({"kind": "import", "module": "demo", "under": None}, {**ENV, "value": None})
    assert [check["outcome"] for check in found] == ["failed", "passed"]
    assert "did not end within 1 s" in found[0]["detail"]


def test_an_import_from_another_place_than_the_checkout_fails(world: World) -> None:
    module(world, "demo.py", "")
    assert world.outcome({"kind": "import", "module": "demo", "under": "/opt/demo"})[0] == "failed"
    assert world.outcome({"kind": "import", "module": "demo", "under": str(world.modules)})[0] == "passed"


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ("hip, cuda = '7.14', None", "passed"),
        ("hip, cuda = None, None", "failed"),
        ("hip, cuda = None, '13.0'", "failed"),
        ("hip, cuda = '7.14', '13.0'", "failed"),
    ],
)
def test_torch_is_judged_by_its_fields_and_not_by_its_label(world: World, fields: str, outcome: str) -> None:
    module(world, "torch/__init__.py", "from torch import version\n__version__ = '2.12.0+git6bbd260'")
    module(world, "torch/version.py", fields)
    found, detail = world.outcome({"kind": "torch_rocm"})
    assert found == outcome
    assert "2.12.0+git6bbd260" in detail


def test_a_broken_torch_fails_with_the_text_of_its_import_error(world: World) -> None:
    module(world, "torch/__init__.py", "raise ImportError('libamdhip64.so.7: cannot open shared object file')")
    assert world.outcome({"kind": "torch_rocm"}) == (
        "failed",
        "ImportError: libamdhip64.so.7: cannot open shared object file",
    )


def test_an_unknown_kind_fails(world: World) -> None:
    assert world.outcome({"kind": "wishful"}) == ("failed", "no such kind of check: 'wishful'")


def test_a_check_that_breaks_fails_and_the_others_go_on(world: World) -> None:
    found = world.check({"kind": "source", "source": "nowhere"}, {**ENV, "value": None})
    assert [check["outcome"] for check in found] == ["failed", "passed"]
    assert "FileNotFoundError" in found[0]["detail"]


def test_an_empty_list_is_no_verification(world: World) -> None:
    world.write("checks.json", {"schema": 1, "image": "demo", "python": sys.executable, "checks": []})
    done = world.run("run")
    assert (done.returncode, done.stderr.strip()) == (1, "verification did not run: the list is empty")


def test_the_result_behind_the_nonce_is_ascii_json_of_this_program_and_this_list(world: World) -> None:
    module(world, "demo.py", "raise RuntimeError('grün ✗')")
    world.check({"kind": "import", "module": "demo", "under": None})
    line = next(line for line in world.run("run", "--nonce", "abc").stdout.splitlines() if line.startswith("abc"))
    assert line.isascii()
    programs = b"".join((INSIDE / name).read_bytes() for name in ("check.py", "imports.py", "seal.py"))
    result = json.loads(line.removeprefix("abc"))
    assert result["program_sha256"] == hashlib.sha256(programs).hexdigest()
    assert result["list_sha256"] == hashlib.sha256(world.list.read_bytes()).hexdigest()
    assert result["nonce"] == "abc"


# Sources


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(world: World, tmp_path: Path) -> Path:
    """A source that is what its record says."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "a.py").write_text("a = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    (folder / "a.py").write_text("a = 2\n")  # a patch
    diff = subprocess.run(["git", "-C", str(folder), "diff", "HEAD"], check=True, capture_output=True).stdout
    record: dict[str, Any] = {
        "name": "demo", "repository": "https://example.invalid/demo", "tag": None, "commit": git(folder, "rev-parse", "HEAD"),
        "checkout": str(folder), "distribution": "demo", "kept": True, "patches": [],
        "diff_sha256": hashlib.sha256(diff).hexdigest(),
    }  # fmt: skip
    world.write("sources/demo.json", record)
    return folder


SOURCE = {"kind": "source", "source": "demo"}


def test_a_source_that_is_what_its_record_says_passes(world: World, checkout: Path) -> None:
    (checkout / "demo.egg-info").mkdir()
    (checkout / "demo.egg-info" / "PKG-INFO").write_text("")
    assert world.outcome(SOURCE)[0] == "passed"


def test_a_source_changed_after_its_patches_fails_with_the_file(world: World, checkout: Path) -> None:
    (checkout / "a.py").write_text("a = 3\n")
    outcome, detail = world.outcome(SOURCE)
    assert outcome == "failed"
    assert "a.py" in detail


def test_a_file_that_is_in_no_commit_fails(world: World, checkout: Path) -> None:
    (checkout / "extra.py").write_text("")
    assert world.outcome(SOURCE) == ("failed", "files that are in no commit: extra.py")


def test_a_source_at_another_commit_fails(world: World, checkout: Path) -> None:
    git(checkout, "commit", "--quiet", "-am", "two")
    outcome, detail = world.outcome(SOURCE)
    assert outcome == "failed"
    assert "its record says" in detail


# Installed distributions, in a real environment


def in_environment(world: World, python: Path, check: dict[str, Any]) -> tuple[str, str]:
    named = {"name": "check", "hint": "change it", **check}
    world.write("checks.json", {"schema": 1, "image": "demo", "python": str(python), "checks": [named]})
    command = [
        str(python),
        str(PROGRAM),
        "run",
        str(world.list),
        "--root",
        str(world.root),
        "--output",
        str(world.result),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert world.result.exists(), done.stderr
    (found,) = json.loads(world.result.read_text())["checks"]
    return found["outcome"], found["detail"]


BUNDLE = "__CLANG_OFFLOAD_BUNDLE__ hipv4-amdgcn-amd-amdhsa--gfx942 "
WHEELS = [
    Wheel(
        "demo",
        "0.29.0+rocm714",
        requires=("numpy", "missing-one"),
        files={"demo/__init__.py": "", "demo/_C.abi3.so": BUNDLE},
    ),
    Wheel("numpy", "1.26.4", files={"numpy/__init__.py": ""}),
    Wheel(
        "breaks",
        "1.0",
        requires=("numpy",),
        files={"breaks/__init__.py": "raise ImportError('numpy.core.multiarray failed')", "breaks/x.so": ""},
    ),
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with a few small distributions."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    found = folder / "venv" / "bin" / "python"
    address = index(folder / "index", WHEELS)
    names = [wheel.name for wheel in WHEELS]
    command = [str(found), "-m", "pip", "install", "--quiet", "--no-deps", "--index-url", address, *names]
    subprocess.run(command, check=True, env={"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull})
    return found


@pytest.mark.parametrize(
    ("tag", "outcome"),
    [
        ("v0.29.0", "passed"),
        ("v0.29.0rc1", "failed"),
        ("v0.29.01", "failed"),
        ("v0.29", "failed"),
        ("v0.29.0.post1", "failed"),
    ],
)
def test_versions_are_compared_by_pep_440_and_not_by_prefix(world: World, python: Path, tag: str, outcome: str) -> None:
    world.write("sources/demo.json", {"distribution": "demo", "tag": tag})
    assert in_environment(world, python, {"kind": "version", "source": "demo"})[0] == outcome


@pytest.mark.parametrize(
    ("targets", "outcome"), [("gfx942", "passed"), ("gfx950", "failed"), ("gfx942;gfx950", "failed")]
)
def test_device_code_is_there_for_every_target(world: World, python: Path, targets: str, outcome: str) -> None:
    world.write("sources/demo.json", {"distribution": "demo"})
    world.write("gpu_targets", f"{targets}\n")
    check = {"kind": "device_code", "source": "demo", "modules": ["_C"]}
    found, detail = in_environment(world, python, check)
    assert found == outcome
    assert outcome == "passed" or "found gfx942" in detail


def test_a_compiled_module_that_is_not_there_fails(world: World, python: Path) -> None:
    world.write("sources/demo.json", {"distribution": "demo"})
    world.write("gpu_targets", "gfx942\n")
    check = {"kind": "device_code", "source": "demo", "modules": ["_rocm_C"]}
    assert in_environment(world, python, check) == ("failed", "demo has no module _rocm_C")


def test_a_new_line_of_pip_check_fails_and_a_waived_one_passes(world: World, python: Path) -> None:
    line = "demo 0.29.0+rocm714 requires missing-one, which is not installed."
    assert in_environment(world, python, {"kind": "pip_check", "waived": {}}) == ("failed", line)
    waived = {"kind": "pip_check", "waived": {"demo": {"missing_one": "why"}, "other": {"idle": "why"}}}
    assert in_environment(world, python, waived) == ("passed", "1 lines, all known; waived and not there: other: idle")


def test_a_line_that_the_base_has_passes(world: World, python: Path) -> None:
    line = "demo 0.29.0+rocm714 requires missing-one, which is not installed."
    world.write("seal.json", {"schema": 1, "distributions": {}, "pip_check": [line]})
    assert in_environment(world, python, {"kind": "pip_check", "waived": {}})[0] == "passed"


def test_what_compiled_against_another_numpy_is_found_by_its_import(world: World, python: Path) -> None:
    outcome, detail = in_environment(world, python, {"kind": "numpy_users"})
    assert outcome == "failed"
    assert detail == "breaks: ImportError: numpy.core.multiarray failed"


@pytest.mark.parametrize(("name", "outcome"), [("tilelang", "passed"), ("numpy", "failed")])
def test_a_distribution_that_was_taken_out_is_absent(world: World, python: Path, name: str, outcome: str) -> None:
    assert in_environment(world, python, {"kind": "absent", "distribution": name})[0] == outcome


# The proof


def edited(world: World, edit: dict[str, Any] | None) -> subprocess.CompletedProcess[str]:
    world.check({**ENV, "value": None})
    if edit is not None:
        world.write("verification.json", {**json.loads(world.result.read_text()), **edit})
    return world.run("proof")


def test_a_fresh_result_is_a_proof(world: World) -> None:
    assert edited(world, None).returncode == 0


@pytest.mark.parametrize(
    "edit",
    [
        {"program_sha256": "0"},
        {"list_sha256": "0"},
        {"checks": []},
        {"checks": [{"name": "check 0", "outcome": "failed"}]},
        {"checks": [{"name": "other", "outcome": "passed"}]},
    ],
    ids=["another program", "another list", "no checks", "a failure", "another check"],
)
def test_a_result_that_belongs_elsewhere_is_no_proof(world: World, edit: dict[str, Any]) -> None:
    done = edited(world, edit)
    assert done.returncode == 1
    assert done.stderr.startswith("verification did not run: ")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "null"])
def test_a_missing_or_torn_result_is_no_proof(world: World, text: str | None) -> None:
    world.check({**ENV, "value": None})
    if text is None:
        world.result.unlink()
    else:
        world.result.write_text(text)
    done = world.run("proof")
    assert done.returncode == 1
    assert done.stderr.startswith("verification did not run: ")
