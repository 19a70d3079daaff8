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
from elves import bundle, elf
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
        ("import os; os._exit(0)", "failed", "exit code 0, no message"),
        ("raise SystemExit(0)", "failed", "SystemExit: 0"),
        ("print('a line of its own'); X = 1", "passed", "demo.py"),
        ("raise ImportError('libx.so: cannot open; is there a /dev/kfd?')", "failed", "libx.so"),
        (
            "raise RuntimeError('HIP error: no ROCm-capable device is detected\\nFor debugging ...')",
            "could not run",
            "HIP",
        ),
        ("raise ValueError('\\udcff')", "failed", "ValueError: \\udcff"),
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


def test_what_an_import_leaves_running_ends_with_its_time(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in INSIDE.glob("[a-z]*.py"):
        (tmp_path / path.name).write_text(path.read_text().replace("TIME_LIMIT_S = 120", "TIME_LIMIT_S = 2"))
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", tmp_path / "check.py")
    number = tmp_path / "number"
    module(world, "demo.py", f"import subprocess\nchild = subprocess.Popen(['sleep', '60'])\n"
           f"open({str(number)!r}, 'w').write(str(child.pid))\nchild.wait()\n")  # fmt: skip
    assert world.outcome({"kind": "import", "module": "demo", "under": None})[0] == "failed"
    status = Path(f"/proc/{number.read_text()}/stat")  # gone, or dead and waiting for its parent
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_a_module_is_loaded_once_for_all_checks(world: World, tmp_path: Path) -> None:
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n"
    module(world, "torch/__init__.py", f"{count}__version__ = '2.12.0'\nfrom torch import version")
    module(world, "torch/version.py", "hip, cuda = '7.14', None")
    module(world, "demo.py", "import torch")
    module(world, "demo2.py", "import torch")
    names = [{"kind": "import", "module": name, "under": None} for name in ("torch", "demo", "demo2")]
    found = world.check({"kind": "torch_rocm"}, *names)
    assert [check["outcome"] for check in found] == ["passed"] * 4
    assert (tmp_path / "count").read_text() == "x"


def test_what_loads_only_alone_passes(world: World) -> None:
    """A fork may fail for the fork's sake: the outcome is that of a process without a past."""
    module(world, "first.py", "")
    module(world, "lonely/__init__.py", "")
    module(world, "lonely/part.py", "import sys\nif 'first' in sys.modules: raise ImportError('not beside first')")
    module(world, "../checkout/app/main.py", "import lonely.part")
    world.write("sources/app.json", {"checkout": str(world.root.parent / "checkout")})
    first = {"kind": "import", "module": "first", "under": None}
    found = world.check(first, {**WINDOW, "packages": ["lonely"]})
    assert [check["outcome"] for check in found] == ["passed", "passed"]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "passed"),
        ("import sys; assert sys.stdin.read() == ''", "passed"),
        ('import os; os.write(1, b\'{"problem": null}\\n{"found": []}\\n\')', "passed"),
        ("import subprocess; subprocess.Popen(['sleep', '60'])", "passed"),
        ("import sys; sys.exit('no')", "failed"),
        ("import os; os.close(1); os.close(2)", "passed"),
    ],
    ids=[
        "leaves a thread",
        "reads its input",
        "writes answers",
        "leaves a process",
        "exits",
        "closes",
    ],
)
def test_whatever_a_module_does_costs_no_other_check(world: World, text: str, outcome: str) -> None:
    module(world, "demo.py", text)
    module(world, "after.py", "")
    names = [{"kind": "import", "module": name, "under": None} for name in ("json", "demo", "after")]
    assert [check["outcome"] for check in world.check(*names)] == ["passed", outcome, "passed"]


def test_a_part_of_a_namespace_package_elsewhere_fails(world: World, tmp_path: Path) -> None:
    module(world, "space/one.py", "")
    check = {"kind": "import", "module": "space", "under": str(world.modules)}
    assert world.outcome(check)[0] == "passed"
    (tmp_path / "other" / "space").mkdir(parents=True)
    places = f"{world.modules}{os.pathsep}{tmp_path / 'other'}"
    outcome, detail = world.outcome(check, PYTHONPATH=places)
    assert outcome == "failed"
    assert str(tmp_path / "other" / "space") in detail


def test_the_root_folder_is_no_place_to_import_from(world: World) -> None:
    """A folder such as /opt is no module, though imports run with / as their working directory."""
    assert world.outcome({"kind": "import", "module": "opt", "under": None})[0] == "failed"


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


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"python": "python", "checks": {}}', '{"python": "python", "checks": [{"kind": "owners"}]}'],
)
def test_a_broken_list_is_no_verification(world: World, text: str) -> None:
    world.write("checks.json", text)
    done = world.run("run", "--output", str(world.result))
    assert (done.returncode, done.stdout, world.result.exists()) == (1, "", False)
    assert done.stderr.startswith("verification did not run: ")


def test_two_checks_of_one_name_are_no_verification(world: World) -> None:
    twice = [{"name": "one", "hint": "", "kind": "owners"}] * 2
    world.write("checks.json", {"schema": 1, "python": sys.executable, "checks": twice})
    assert world.run("run").stderr.strip() == "verification did not run: two checks have one name"


def test_an_empty_list_is_no_verification(world: World) -> None:
    world.write("checks.json", {"schema": 1, "image": "demo", "python": sys.executable, "checks": []})
    done = world.run("run")
    assert (done.returncode, done.stderr.strip()) == (1, "verification did not run: the list is empty")


def test_the_result_behind_the_nonce_is_ascii_json_of_this_program_and_this_list(world: World) -> None:
    module(world, "demo.py", "raise RuntimeError('grün ✗')")
    world.check({"kind": "import", "module": "demo", "under": None})
    line = next(line for line in world.run("run", "--nonce", "abc").stdout.splitlines() if line.startswith("abc"))
    assert line.isascii()
    names = ("check", "checked", "device", "imports", "kinds", "seal", "trial")
    programs = b"".join((INSIDE / f"{name}.py").read_bytes() for name in names)
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


def test_what_a_patch_creates_belongs_to_the_source_as_long_as_it_is_the_patch_s(
    world: World, checkout: Path, tmp_path: Path
) -> None:
    lines = "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+n = 1\n"
    (tmp_path / "new.patch").write_text(f"diff --git a/new.py b/new.py\nnew file mode 100644\n{lines}")
    git(checkout, "apply", str(tmp_path / "new.patch"))
    assert world.outcome(SOURCE)[0] == "failed"
    record = json.loads((world.root / "sources/demo.json").read_text())
    world.write("sources/demo.json", {**record, "patches": [{"path": str(tmp_path / "new.patch"), "sha256": ""}]})
    assert world.outcome(SOURCE)[0] == "passed"
    (checkout / "new.py").write_text("n = 2\n")
    assert world.outcome(SOURCE)[0] == "failed"


def test_a_source_at_another_commit_fails(world: World, checkout: Path) -> None:
    git(checkout, "commit", "--quiet", "-am", "two")
    outcome, detail = world.outcome(SOURCE)
    assert outcome == "failed"
    assert "its record says" in detail


def test_a_source_that_is_gone_fails(world: World, checkout: Path) -> None:
    checkout.rename(checkout.with_name("elsewhere"))
    assert world.outcome(SOURCE)[0] == "failed"


def test_without_git_a_source_could_not_be_looked_at(world: World, checkout: Path) -> None:
    assert checkout.exists()
    assert world.outcome(SOURCE, PATH="/nonexistent") == ("could not run", "the image has no git")


# The API window, confirmed by import

WINDOW = {
    "kind": "api_window",
    "consumer": "app",
    "folders": ["app"],
    "provider": "prov",
    "packages": ["prov"],
    "unused": {},
    "last": True,
}


def api(world: World, consumer: str, unused: dict[str, str] | None = None, **files: str) -> tuple[str, str]:
    """The outcome for a consumer's file and the modules of a provider, `__` for a folder."""
    for name, text in {"prov": "", **files}.items():
        module(world, "prov/__init__.py" if name == "prov" else f"prov/{name}.py", text)
    module(world, "../checkout/app/main.py", consumer)
    world.write("sources/app.json", {"checkout": str(world.root.parent / "checkout")})
    return world.outcome({**WINDOW, "unused": unused or {}})


def test_a_provider_may_print_while_it_is_imported(world: World) -> None:
    assert api(world, "from prov import X", prov="print('INFO: platform rocm')\nX = 1") == ("passed", "1 names")


def test_a_name_that_only_the_source_has_fails_with_the_error_of_its_import(world: World) -> None:
    outcome, detail = api(world, "from prov.a import X", a="import nothing_such\nX = 1")
    assert outcome == "failed"
    assert detail.startswith("prov.a.X, imported at app/main.py:1; it fails: ModuleNotFoundError: No module named")


def test_a_provider_that_ends_the_process_fails_that_name_and_the_others_are_tried(world: World) -> None:
    consumer = "import prov.a\nimport prov.b\nimport prov.c\n"
    outcome, detail = api(world, consumer, a="import os; os._exit(0)", b="", c="import os; os.abort()")
    assert outcome == "failed"
    assert [line.partition(", imported")[0] for line in detail.splitlines()] == ["prov.a", "prov.c"]


def test_names_that_ask_for_a_device_could_not_be_tried(world: World) -> None:
    device = "raise RuntimeError('No HIP GPUs are available')"
    assert api(world, "import prov.a\nimport prov.b\n", a=device, b="")[0] == "could not run"


def test_a_device_that_is_not_there_hides_no_other_failure(world: World) -> None:
    device = "raise RuntimeError('No HIP GPUs are available')"
    outcome, detail = api(world, "import prov.a\nimport prov.b\n", a=device, b="import nothing_such")
    assert outcome == "failed"
    assert "prov.b, imported at app/main.py:2" in detail


def test_where_an_import_fails_its_alternative_is_taken_and_tried(world: World) -> None:
    consumer = "try:\n    from prov.a import X\nexcept ImportError:\n    from prov.b import X\n"
    outcome, detail = api(world, consumer, a="import nothing_such\nX = 1", b="X = 1")
    assert (outcome, detail) == ("passed", "1 names")
    (found,) = json.loads(world.result.read_text())["checks"]
    assert found["notes"][0].startswith("alternative taken: prov.b.X, for want of: prov.a.X")
    assert api(world, consumer, a="import nothing_such\nX = 1", b="raise ImportError\nX = 1")[0] == "failed"


def test_an_optional_import_may_fail(world: World) -> None:
    assert (
        api(world, "try:\n    import prov.a\nexcept ImportError:\n    pass\n", a="import nothing_such")[0] == "passed"
    )


def test_what_a_waived_file_takes_is_not_tried(world: World) -> None:
    assert api(world, "import prov.a", {"app/*": "opt-in"}, a="import nothing_such")[0] == "passed"


def test_a_waiver_is_idle_when_no_window_of_its_consumer_needs_it(world: World) -> None:
    for name, text in {"one": "", "two": "X = 1"}.items():
        module(world, f"{name}/__init__.py", text)
    for name, text in {"a": "from one import X", "b": "from two import X"}.items():
        module(world, f"../checkout/app/{name}.py", text)
    world.write("sources/app.json", {"checkout": str(world.root.parent / "checkout")})
    unused = {"app/a.py": "opt-in", "app/b.py": "opt-in"}
    windows = [{**WINDOW, "packages": [name], "unused": unused, "last": name == "two"} for name in ("one", "two")]
    first, second = world.check(*windows)
    assert [note.partition(":")[0] for note in first["notes"]] == ["waived (opt-in)"]
    assert second["notes"] == ["waives nothing: app/b.py"]


def test_a_name_that_a_module_makes_on_demand_is_confirmed(world: World) -> None:
    lazy = "def __getattr__(name):\n    if name != 'X':\n        raise AttributeError(name)\n    return 1\n"
    assert api(world, "from prov.a import X", a=lazy)[0] == "passed"
    assert api(world, "from prov.a import Y", a=lazy)[0] == "failed"


def test_a_provider_that_is_not_installed_fails(world: World) -> None:
    module(world, "../checkout/app/main.py", "")
    world.write("sources/app.json", {"checkout": str(world.root.parent / "checkout")})
    assert world.outcome(WINDOW) == ("failed", "prov is not installed")


# Installed distributions, in a real environment


def in_environment(world: World, python: Path, check: dict[str, Any], **environment: str) -> tuple[str, str]:
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
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert world.result.exists(), done.stderr
    (found,) = json.loads(world.result.read_text())["checks"]
    return found["outcome"], found["detail"]


BREAKS = """
import os
if os.environ.get("DEMO") == "no device":
    raise RuntimeError("No HIP GPUs are available")
if os.environ.get("DEMO") == "ends":
    os._exit(0)
if os.environ.get("DEMO") != "fine":
    raise ImportError("numpy.core.multiarray failed")
"""
WHEELS = [
    Wheel(
        "demo",
        "0.29.0+rocm714",
        requires=("numpy", "missing-one"),
        files={"demo/__init__.py": "", "demo/_C.abi3.so": ""},
    ),
    Wheel("numpy", "1.26.4", files={"numpy/__init__.py": ""}),
    Wheel(
        "breaks",
        "1.0",
        requires=("numpy",),
        files={"breaks/__init__.py": BREAKS, "breaks/x.so": ""},
    ),
    Wheel(
        "elsewhere",
        "1.0",
        requires=(
            "numpy; python_version < '3'",
            "numpy-stl; python_version < '3'",
        ),
        files={"elsewhere/__init__.py": "1 / 0", "elsewhere/x.so": ""},
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
    (compiled,) = (folder / "venv").glob("lib/*/site-packages/demo/_C.abi3.so")
    compiled.write_bytes(elf({".hip_fatbin": bundle("gfx942")}))
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
    assert in_environment(world, python, {"kind": "version", "distribution": "demo", "tag": tag})[0] == outcome


@pytest.mark.parametrize(
    ("targets", "outcome"), [("gfx942", "passed"), ("gfx950", "failed"), ("gfx942;gfx950", "failed")]
)
def test_device_code_is_there_for_every_target(world: World, python: Path, targets: str, outcome: str) -> None:
    world.write("gpu_targets", f"{targets}\n")
    check = {"kind": "device_code", "distribution": "demo", "modules": ["_C"]}
    found, detail = in_environment(world, python, check)
    assert found == outcome
    assert outcome == "passed" or "found gfx942" in detail


def test_a_compiled_module_that_is_not_there_fails(world: World, python: Path) -> None:
    world.write("gpu_targets", "gfx942\n")
    check = {"kind": "device_code", "distribution": "demo", "modules": ["_rocm_C"]}
    assert in_environment(world, python, check) == ("failed", "demo has no module _rocm_C")


def test_a_new_line_of_pip_check_fails_and_a_waived_one_passes(world: World, python: Path) -> None:
    line = "demo 0.29.0+rocm714 requires missing-one, which is not installed."
    detail = f"{line} (key: pip_check.demo.missing-one)"
    assert in_environment(world, python, {"kind": "pip_check", "waived": {}}) == ("failed", detail)
    waived = {"kind": "pip_check", "waived": {"demo": {"missing_one": "why"}, "other": {"idle": "why"}}}
    assert in_environment(world, python, waived) == ("passed", "1 lines, all known")
    (found,) = json.loads(world.result.read_text())["checks"]
    assert found["notes"] == ["waives nothing: pip_check.other.idle"]


def test_a_line_that_the_base_has_passes(world: World, python: Path) -> None:
    line = "demo 0.29.0+rocm714 requires missing-one, which is not installed."
    world.write("seal.json", {"schema": 1, "distributions": {}, "pip_check": [line]})
    assert in_environment(world, python, {"kind": "pip_check", "waived": {}})[0] == "passed"


def test_what_a_pip_that_cannot_check_says_is_no_line_of_the_base(world: World, python: Path) -> None:
    line = "An error occurred during configuration: option timeout: invalid floating-point value: 'soon'"
    world.write("seal.json", {"schema": 1, "distributions": {}, "pip_check": [line]})
    outcome, detail = in_environment(world, python, {"kind": "pip_check", "waived": {}}, PIP_TIMEOUT="soon")
    assert outcome == "failed"
    assert detail.startswith("pip check did not run: An error occurred during configuration: option timeout")


def test_what_compiled_against_another_numpy_is_found_by_its_import(world: World, python: Path) -> None:
    outcome, detail = in_environment(world, python, {"kind": "numpy_users"})
    assert outcome == "failed"
    assert detail == "breaks: ImportError: numpy.core.multiarray failed"


@pytest.mark.parametrize(
    ("demo", "outcome"), [("fine", "passed"), ("no device", "could not run"), ("ends", "failed"), ("", "failed")]
)
def test_what_needs_numpy_has_the_outcome_of_its_imports(world: World, python: Path, demo: str, outcome: str) -> None:
    found, detail = in_environment(world, python, {"kind": "numpy_users"}, DEMO=demo)
    assert (found, "elsewhere" in detail) == (outcome, False)


@pytest.mark.parametrize(("name", "outcome"), [("tilelang", "passed"), ("numpy", "failed")])
def test_a_distribution_that_was_taken_out_is_absent(world: World, python: Path, name: str, outcome: str) -> None:
    assert in_environment(world, python, {"kind": "absent", "distribution": name})[0] == outcome


def test_a_variable_that_its_program_does_not_read_fails(world: World, python: Path) -> None:
    def outcome(*names: str) -> tuple[str, str]:
        return in_environment(world, python, {"kind": "env_read", "variables": list(names)})

    assert outcome("BREAKS_DEMO", "HSA_OF_NOBODY") == ("failed", "BREAKS_DEMO: breaks 1.0 has no such name")
    assert outcome("HSA_OF_NOBODY")[0] == "could not run"
    (package,) = python.parents[1].glob("lib/*/site-packages/elsewhere")
    (package / "__init__.py").write_text("NAME = 'ELSEWHERE_DEMO'\n")
    assert outcome("ELSEWHERE_DEMO", "HSA_OF_NOBODY") == ("passed", f"ELSEWHERE_DEMO: {package / '__init__.py'}")


@pytest.mark.parametrize(
    ("file", "mode", "outcome"),
    [("demo/x", 0o755, "passed"), ("demo/x", 0o644, "failed"), ("demo/y", 0o755, "failed")],
)
def test_a_program_of_a_distribution_can_be_executed(
    world: World, python: Path, file: str, mode: int, outcome: str
) -> None:
    (package,) = python.parents[1].glob("lib/*/site-packages/demo")
    (package / "x").touch()
    (package / "x").chmod(mode)
    check = {"kind": "executable", "distribution": "demo", "file": file}
    assert in_environment(world, python, check)[0] == outcome


def test_compiled_modules_are_loaded_and_not_only_their_packages(world: World, python: Path) -> None:
    outcome, detail = in_environment(world, python, {"kind": "loads", "distribution": "demo"})
    assert outcome == "failed"
    assert detail.startswith("demo._C: ImportError: ")


def test_two_copies_of_a_library_in_one_process_are_found(world: World, python: Path, tmp_path: Path) -> None:
    """The copies are this machine's own libz, under another name each."""
    library = Path("/usr/lib/x86_64-linux-gnu/libz.so.1").read_bytes()
    for number in (1, 2):
        (tmp_path / f"libdemo.so.{number}").write_bytes(library.replace(b"libz.so.1", b"libz.so.%d" % (number + 6)))
    (package,) = python.parents[1].glob("lib/*/site-packages/numpy")
    check: dict[str, Any] = {"kind": "one_copy", "modules": ["numpy"], "distributions": []}
    for numbers, libraries, wanted in (((), ["libdemo"], "could not run"), ((1, 1), ["libdemo"], "passed"),
                                       ((1, 2), ["libdemo"], "failed"), ((1, 2), ["libother"], "could not run")):  # fmt: skip
        lines = [f"ctypes.CDLL({str(tmp_path / f'libdemo.so.{number}')!r})" for number in numbers]
        (package / "__init__.py").write_text("\n".join(["import ctypes", *lines, ""]))
        assert in_environment(world, python, {**check, "libraries": libraries})[0] == wanted
    assert in_environment(world, python, {**check, "libraries": ["libdemo"]})[1] == (
        f"libdemo: {tmp_path}/libdemo.so.1, {tmp_path}/libdemo.so.2"
    )


def test_the_configuration_of_an_image_is_seen_from_outside(world: World) -> None:
    check = {"kind": "config", "key": "WorkingDir", "value": "/opt/demo", "file": None}
    assert world.outcome(check)[0] == "could not run"
    world.write("config.json", {"WorkingDir": "/opt/demo", "gpu_targets": "gfx942"})
    assert world.outcome(check) == ("passed", "/opt/demo")
    assert world.outcome({**check, "value": "/"})[0] == "failed"
    world.write("gpu_targets", "gfx950\n")
    found = world.outcome({**check, "key": "gpu_targets", "value": None, "file": "gpu_targets"})
    assert found == ("failed", "gpu_targets of the image is 'gfx942', wanted 'gfx950'")


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
        {"checks": [{"name": "check 0", "outcome": "fine"}]},
        {"counts": {"passed": 0, "failed": 1, "could_not_run": 0}},
    ],
    ids=["another program", "another list", "no checks", "a failure", "another check", "another outcome", "counts"],
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
