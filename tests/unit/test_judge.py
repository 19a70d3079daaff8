"""The judge: what it lets through, what it refuses and what it says then, with real pips."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import wheels
from pip._vendor.packaging.requirements import Requirement
from wheels import BASE, ROCM, SEALED, Image, Wheel

from builder.inside import judge

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Mapping

FILE = "requirements/vllm/rocm.txt"
WHERE = "change images/x.yaml, sources.vllm.requirements (line 71)"
INDEX = (
    Wheel("clean", "1.0", ("helper>=1", "torch>=2.0", "ghost; extra == 'all'")),
    Wheel("helper", "1.0"),
    Wheel("helper", "1.5"),
    Wheel("torch", "2.13.0", ("nvidia-cublas",)),
    Wheel("nvidia-cublas", "13.0"),
    Wheel("wantsnew", "1.0", ("torch>2.12.0",)),
    Wheel("triton", "3.7.0+gitb4e20bbe"),
    Wheel("wantstriton", "1.0", ("triton",)),
    Wheel("indirect", "1.0", ("wantsnew",)),
    Wheel("wantscuda", "1.0", ("nvidia-cublas",)),
    Wheel("wantsvllm", "1.0", ("vllm",)),
    Wheel("vllm", "0.30.0"),
    Wheel("torchaudio", "2.11.0"),
    Wheel("amdsmi", "7.0"),
    Wheel("pyjwt", "2.10.0"),
    Wheel("mcp", "1.0", ("pyjwt>=2.10",)),
    Wheel("numpy", "1.26.4"),
    Wheel("numpy", "2.3.0"),
    Wheel("modern", "1.0", ("numpy>=2",)),
    Wheel("pyarrow", "25.0"),
    Wheel("pyarrow", "26.0"),
    Wheel("newarrow", "1.0", ("pyarrow>=26",)),
    Wheel("opencv", "4.11.0", ("numpy<2",)),
    Wheel("opencv", "4.13.0", ("numpy>=2",)),
    Wheel("user-of-opencv", "1.0", ("opencv>=4.0",)),
    Wheel("plain", "2.0"),
    Wheel("fast-triton", "1.0", (), {"triton/__init__.py": ""}),
)
POLICY: dict[str, Any] = {
    "schema": 1,
    "manifest": "images/x.yaml",
    "steps": ["VLLM"],
    "forbidden": {
        "nvidia-*": {"reason": "a CUDA build", "where": "forbidden.nvidia-* (line 40)"},
        "amdsmi": {"reason": "a second libamd_smi", "where": "forbidden.amdsmi (line 41)"},
    },
    "locked": {},
    "constraints": {
        "numpy": {"version": "==1.26.4", "where": "constraints.numpy (line 50)"},
        "pyarrow": {"version": "<26", "where": "constraints.pyarrow (line 51)"},
    },
    "overrides": {"opencv": {"version": "4.11.0", "where": "overrides.opencv (line 60)", "waived": {}}},
    "provided": {"vllm": {"source": "vllm", "where": "sources.vllm (line 65)"}},
    "source_builds": [],
    "ignored_pip_options": [],
    "installer": {},
    "sealed": {"torch": {"where": "sealed.torch (line 20)"}, "apex": {"where": "sealed.apex (line 21)"}},
}
RULES = {
    "file": "requirements/vllm/rocm.txt",
    "without": [],
    "add": [],
    "project": "vllm",
    "where": "sources.vllm.requirements (line 71)",
}

# What a machine may say of how packages are reached, and of how pip talks: spelled once more, as the right values.
KEPT = {
    *("cache-dir", "cert", "client-cert", "default-timeout", "find-links", "index-url", "keyring-provider"),
    *("no-cache-dir", "no-index", "no-proxy-env", "proxy", "resume-retries", "retries", "timeout", "trusted-host"),
}
IDLE = {
    *("disable-pip-version-check", "log", "no-color", "no-input", "no-python-version-warning", "no-warn-conflicts"),
    *("no-warn-script-location", "progress-bar", "quiet", "root-user-action", "verbose"),
}


@dataclass(frozen=True)
class Step:
    """An image in which the judge can be asked."""

    image: Image

    def judge(
        self,
        text: str,
        *,
        without: Iterable[str] = (),
        add: Iterable[str] = (),
        policy: Mapping[str, Any] | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Judge a requirement file with that text."""
        self.image.write("sets/VLLM.json", {**RULES, "without": list(without), "add": list(add)})
        self.image.write("policy.json", {**POLICY, **(policy or {})})
        self.image.write("requirements/vllm/rocm.txt", text)
        done = self.image.run("judge", "install", "VLLM", **environment)
        assert "Traceback" not in done.stderr
        return done

    def refusal(self, text: str, **options: Any) -> str:
        """What it says when it refuses; and nothing of torch has changed."""
        plan = self.image.root / "plans" / "VLLM.json"
        plan.unlink(missing_ok=True)
        done = self.judge(text, **options)
        assert done.returncode == 1, done.stdout
        assert not plan.exists()
        assert self.image.version("torch") == ROCM
        return done.stderr

    def install(self, text: str, **options: Any) -> dict[str, str]:
        """Name and version of what it installed."""
        done = self.judge(text, **options)
        assert done.returncode == 0, done.stderr
        plan = self.image.read("plans/VLLM.json")["distributions"]
        assert all(self.image.version(item["name"]) == item["version"] for item in plan)
        return {item["name"]: item["version"] for item in plan}


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return wheels.index(tmp_path_factory.mktemp("index"), INDEX)


@pytest.fixture(scope="session")
def pips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pips")


@pytest.fixture
def version() -> str:
    return "bundled"


@pytest.fixture
def step(tmp_path: Path, pips: Path, address: str, version: str) -> Step:
    image = wheels.image(tmp_path, wheels.pip_files(pips, version), BASE)
    seal = {name: {"version": image.version(name)} for name in ("torch", "torchvision", "triton", "amd-aiter")}
    modules = ["aiter", "torch", "torchvision", "triton"]
    image.write("seal.json", {"schema": 1, "distributions": seal, "guests": [], "modules": modules, "pip_check": []})
    image.write("pip.conf", f"[global]\nindex-url = {address}\n")
    return Step(image)


several_pips = pytest.mark.parametrize("version", ["23.0.1", "newest"])


@several_pips
def test_a_clean_plan_is_installed_exactly(step: Step) -> None:
    done = step.judge("clean # for a reason\n")
    assert (done.returncode, done.stdout) == (0, "judge: VLLM: 2 distributions, done\n"), done.stderr
    plan = step.image.read("plans/VLLM.json")
    assert plan["step"] == "VLLM"
    helper = next(item for item in plan["distributions"] if item["name"] == "helper")
    assert helper["url"].startswith("file://")
    assert len(helper["sha256"]) == 64
    assert helper["requested_by"] == f"clean 1.0 asks for helper>=1, {FILE}:1 asks for clean"


def test_what_is_there_already_is_an_empty_plan(step: Step) -> None:
    assert step.install("torch>=2.0\nplain\n") == {}
    assert step.install("# nothing\n") == {}


@several_pips
def test_a_newer_torch_asked_for_by_a_line_is_refused_with_the_chain(step: Step) -> None:
    told = step.refusal("torch>=2.13\nclean\n")
    assert f"judge: VLLM: {FILE}:1 asks for torch>=2.13, but the base has torch {ROCM}" in told
    assert WHERE in told
    assert "pip finds no plan" in told


@several_pips
def test_a_newer_torch_asked_for_by_a_dependency_is_refused_with_the_chain(step: Step) -> None:
    told = step.refusal("clean\nindirect\n")
    chain = f"wantsnew 1.0 asks for torch>2.12.0, indirect 1.0 asks for wantsnew, {FILE}:2"
    assert f"{chain} asks for indirect, but the base has torch {ROCM}" in told
    assert WHERE in told


def test_a_sealed_name_is_refused_also_where_pip_finds_it_missing(step: Step) -> None:
    """The constraints let pip bring the very version; the index's copy is not the base's build."""
    shutil.rmtree(step.image.site / "triton-3.7.0+gitb4e20bbe.dist-info")
    told = step.refusal("wantstriton\nwantscuda\n")
    assert "triton 3.7.0+gitb4e20bbe would replace the sealed triton 3.7.0+gitb4e20bbe" in told
    assert f"wantstriton 1.0 asks for triton, {FILE}:1 asks for wantstriton" in told
    assert "nvidia-cublas 13.0 is forbidden as nvidia-*: a CUDA build" in told, "all refusals at once"


@several_pips
def test_all_refusals_of_a_plan_come_at_once(step: Step) -> None:
    told = step.refusal("wantscuda\nwantsvllm\ntorchaudio\namdsmi\nclean\n")
    assert "nvidia-cublas 13.0 is forbidden as nvidia-*: a CUDA build" in told
    assert "wantscuda 1.0 asks for nvidia-cublas, requirements/vllm/rocm.txt:1 asks for wantscuda" in told
    assert f"{WHERE} or forbidden.nvidia-* (line 40)\n    such as without: {{wantscuda: {{reason: ...}}}}\n" in told
    assert "vllm 0.30.0 is built here from the source vllm" in told
    assert f"{WHERE} or sources.vllm (line 65)" in told
    assert "torchaudio 2.11.0 is of torch's family, and the base has none" in told
    assert "amdsmi 7.0 is forbidden" in told
    assert step.image.version("clean") is None


@several_pips
def test_a_copy_without_record_is_refused_and_after_its_removal_replaced(step: Step) -> None:
    info = step.image.site / "PyJWT-2.7.0.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: PyJWT\nVersion: 2.7.0\n")
    (info / "top_level.txt").write_text("jwt\nplain\n")
    (step.image.site / "jwt").mkdir()
    (step.image.site / "jwt" / "__init__.py").touch()
    told = step.refusal("mcp\n")
    assert "pyjwt 2.10.0 would replace pyjwt 2.7.0, which has no RECORD for an uninstall" in told
    assert "mcp 1.0 asks for pyjwt>=2.10, requirements/vllm/rocm.txt:1 asks for mcp" in told
    assert "change images/x.yaml, removed" in told
    done = step.image.run("judge", "remove", "PyJWT", "--optional", "tilelang")
    assert done.returncode == 0, done.stderr
    gone = [info, step.image.site / "jwt"]
    assert done.stdout.splitlines() == [
        *(f"judge: remove: {path}" for path in gone),
        "judge: remove: 1 distributions, done",
    ]
    assert not info.exists()
    assert not (step.image.site / "jwt").exists()
    assert (step.image.site / "plain").exists(), "a module that another distribution owns stays"
    assert step.install("mcp\n") == {"mcp": "1.0", "pyjwt": "2.10.0"}


def test_the_project_of_the_step_is_left_out_of_its_constraints(step: Step) -> None:
    """A constraint on a project that is given as a tree must equal the tree's version: A14."""
    code = (
        "import judge, pathlib, tempfile; root = pathlib.Path(__import__('sys').argv[1])\n"
        "found = judge.Judge(root, 'VLLM', pathlib.Path(tempfile.mkdtemp()))\n"
        "print(found.constraints.read_text())"
    )
    seal = step.image.read("seal.json")
    seal["distributions"]["vllm"] = {"version": "0.29.0+rocm714"}
    step.image.write("seal.json", seal)
    step.judge("plain\n")
    done = step.image.start("-c", code, str(step.image.root), PYTHONPATH=str(wheels.INSIDE))
    lines = done.stdout.split()
    assert sorted(lines) == [
        "amd-aiter==0.1.12",
        "numpy==1.26.4",
        "opencv==4.11.0",
        "pyarrow<26",
        f"torch=={ROCM}",
        "torchvision==0.27.0+rocm7.14.0a20260608",
        "triton==3.7.0+gitb4e20bbe",
    ]
    assert "vllm 0.30.0 would replace the sealed vllm 0.29.0+rocm714" in step.refusal("vllm>=0.30\n")


@several_pips
def test_wheels_are_looked_into_before_they_are_installed(step: Step) -> None:
    told = step.refusal("fast-triton\n")
    assert "judge: VLLM: fast-triton 1.0 brings files of the sealed triton under another name" in told
    assert step.image.version("fast-triton") is None


def test_a_repository_is_satisfied_by_a_source_of_that_commit(step: Step) -> None:
    commit = "d64a6394d1e09c613fab90260054cecc2684586d"
    address = "https://example.invalid/people/plain"
    record = {"name": "plain", "repository": f"{address}.git", "commit": commit, "distribution": "plain"}
    step.image.write("sources/plain.json", record)
    assert step.install(f"plain @ git+{address}@{commit}\n-e git+{address}.git@{commit}#egg=plain\n") == {}
    told = step.refusal(f"plain @ git+{address}@main\nthing @ git+https://example.invalid/thing@{commit}\n")
    assert f"sources.plain has {commit}; leave it to that source" in told
    assert "'thing @ git+https://example.invalid/thing@" in told
    assert "is a repository: its code would run unjudged" in told
    step.image.write("sources/plain.json", {**record, "distribution": "absent"})
    assert "leave it to that source" in step.refusal(f"plain @ git+{address}@{commit}\n")


@pytest.mark.parametrize("key", ["PIP_EXTRA_INDEX_URL", "PIP_FORCE_REINSTALL", "PIP_IGNORE_INSTALLED"])
def test_what_reopens_a_sealed_name_is_refused_unless_the_manifest_says_so(step: Step, key: str) -> None:
    name = key.removeprefix("PIP_").lower().replace("_", "-")
    value = "file:///nowhere" if name == "extra-index-url" else "1"
    told = step.refusal("clean\n", **{key: value})
    assert f"{name} of the machine's configuration could take a sealed distribution from elsewhere" in told
    assert "clean 1.0 asks for torch>=2.0, requirements/vllm/rocm.txt:1 asks for clean" in told
    assert f"change images/x.yaml, ignored_pip_options.{name}, or unset it in the base" in told
    assert step.install("helper\n", **{key: value}) == {"helper": "1.5"}, "no sealed name can be resolved"
    assert step.install("clean\n", policy={"ignored_pip_options": [name]}, **{key: value}) == {"clean": "1.0"}
    assert step.install("clean\n", **{key: "" if name == "extra-index-url" else "0"}) == {}


def test_a_pip_without_reports_is_refused(step: Step) -> None:
    (step.image.site / "pip").unlink()
    (step.image.site / "pip").mkdir()
    old = step.image.site / "pip" / "__init__.py"
    old.write_text("__version__ = '22.1.2'\n")
    found = next(path for path in sys.path if (Path(path) / "pip" / "_vendor").is_dir())
    (step.image.site / "pip" / "_vendor").symlink_to(Path(found) / "pip" / "_vendor")
    assert "pip 22.1.2 makes no report: 22.2 is the oldest that does" in step.refusal("helper\n")


def test_an_ordinary_distribution_may_be_replaced(step: Step) -> None:
    assert step.install("plain>=2\n") == {"plain": "2.0"}


def test_an_override_is_installed_without_dependencies_and_serves_its_dependants(step: Step) -> None:
    assert step.install("opencv>=4.13\nnumpy\n") == {"opencv": "4.11.0", "numpy": "1.26.4"}
    assert step.install("opencv>=4.13\nuser-of-opencv\n") == {"user-of-opencv": "1.0"}


def test_what_an_override_lacks_is_exactly_what_is_waived(step: Step) -> None:
    told = step.refusal("opencv\n")
    assert "opencv 4.11.0, an override, needs numpy<2, which is not there" in told
    assert "or pip_check.opencv" in told
    waived = {"opencv": {**POLICY["overrides"]["opencv"], "waived": {"numpy": "pip_check.OpenCV.numpy"}}}
    assert step.install("opencv\n", policy={"overrides": waived}) == {}
    told = step.refusal("opencv\nnumpy\n", policy={"overrides": waived})
    assert "opencv 4.11.0, an override, lacks no numpy: its waiver has to go" in told
    assert "change images/x.yaml, pip_check.OpenCV.numpy" in told


def test_an_override_lacks_also_what_is_there_in_a_version_that_it_refuses(step: Step) -> None:
    Wheel("numpy", "2.3.0").unpack(step.image.site)
    assert "opencv 4.11.0, an override, needs numpy<2, which is not there" in step.refusal("opencv\n")


def test_an_override_that_the_base_has_in_another_version_is_not_ours_to_judge(step: Step) -> None:
    Wheel("opencv", "4.13.0", ("numpy>=2",)).unpack(step.image.site)
    assert step.install("helper\n") == {"helper": "1.5"}


def test_what_is_locked_is_taken_where_it_is_asked_for_and_nothing_is_installed_because_of_it(step: Step) -> None:
    locked = {"locked": {"helper": "1.0", "modern": "1.0", "torch": "1.0"}}  # what is sealed is not for a lock to say
    assert step.install("helper\n", policy=locked) == {"helper": "1.0"}
    told = step.refusal("helper>=1.5\n", policy=locked)
    assert "asks for helper>=1.5, but images/x.lock has helper 1.0" in told
    assert "change images/x.yaml, sources.vllm.requirements (line 71) or delete images/x.lock" in told


def test_an_override_that_is_left_out_is_not_installed(step: Step) -> None:
    assert step.install("opencv>=4.13\nhelper\n", without=["OpenCV"]) == {"helper": "1.5"}


def test_a_line_for_another_platform_brings_no_override(step: Step) -> None:
    assert step.install("opencv>=4.13; sys_platform == 'win32'\nhelper; sys_platform == 'win32'\n") == {}


@several_pips
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("modern", "modern 1.0 asks for numpy>=2, {} asks for modern, but the manifest holds numpy==1.26.4"),
        (
            "newarrow",
            "newarrow 1.0 asks for pyarrow>=26, {} asks for newarrow, but the manifest holds pyarrow<26",
        ),
    ],
)
def test_a_conflict_with_a_constraint_names_both_sides(step: Step, line: str, says: str) -> None:
    told = step.refusal(f"{line}\n")
    assert says.format("requirements/vllm/rocm.txt:1") in told
    assert f"{WHERE} or constraints." in told


def test_a_range_that_the_plan_keeps_to_is_no_conflict(step: Step) -> None:
    told = step.refusal("modern\npyarrow>=20,<26\n")
    assert "but the manifest holds numpy==1.26.4" in told
    assert "but the manifest holds pyarrow<26" not in told


@several_pips
def test_an_installed_distribution_whose_requirements_nobody_can_read_is_named(step: Step) -> None:
    Wheel("ancient", "0.9", ("torch >> dev",)).unpack(step.image.site)
    said = step.refusal("ancient\nclean\n")
    assert "judge: VLLM: ancient 0.9 is installed, and asks for what nobody can read: " in said
    assert "torch >> dev" in said


def test_a_constraint_chooses_the_version(step: Step) -> None:
    assert step.install("numpy\npyarrow\n") == {"numpy": "1.26.4", "pyarrow": "25.0"}


def test_a_name_that_no_index_has_is_told_in_pips_words(step: Step) -> None:
    assert "No matching distribution found for nosuchthing" in step.refusal("nosuchthing\n")


def test_lines_are_left_out_and_added_as_the_manifest_says(step: Step) -> None:
    text = "# comment\n-r more/common.txt\nWantsNew >= 1 \\\n  , < 3\n"
    step.image.write("requirements/vllm/more/common.txt", "--requirement=deep.txt\nhelper\n")
    step.image.write("requirements/vllm/more/deep.txt", "\n")
    found = step.install(text, without=["wantsnew"], add=["pyarrow==25.0"])
    assert found == {"helper": "1.5", "pyarrow": "25.0"}


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.invalid/simple",
        "--extra-index-url=https://example.invalid/simple",
        "-i https://example.invalid/simple",
        "--find-links /tmp",
        "-f /tmp",
        "-c constraints.txt",
        "--constraint constraints.txt",
        "--pre",
        "--no-binary :all:",
        "-e .",
        "--editable .",
        "helper --hash=sha256:00",
        "helper --global-option=x",
        "helper @ https://example.invalid/helper.whl",
        "git+https://example.invalid/helper",
        "./helper",
        "https://example.invalid/helper.whl",
        "-r missing.txt",
        "-r rocm.txt",
    ],
)
def test_a_requirement_file_may_only_name_distributions(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements" / "rocm.txt"
    path.parent.mkdir()
    path.write_text(f"clean\n{line}\n")
    _, faults = judge.flatten(path, tmp_path)
    assert len(faults) == 1
    assert "requirements/" in faults[0]
    assert line in faults[0] or line.startswith("-r")


def test_every_hostile_line_is_told_before_pip_runs(step: Step) -> None:
    told = step.refusal("--extra-index-url https://example.invalid\nclean\n-e .\n")
    assert "judge: VLLM: requirements/vllm/rocm.txt:1: option '--extra-index-url" in told
    assert "judge: VLLM: requirements/vllm/rocm.txt:3: '-e .' is a path" in told


def test_an_extra_index_of_the_machine_is_not_used(step: Step, tmp_path: Path, address: str) -> None:
    extra = wheels.index(tmp_path / "extra", [Wheel("helper", "9.0"), Wheel("onlythere", "1.0")])
    machine = step.image.python.parents[1] / "pip.conf"  # where pip looks by itself
    machine.write_text(f"[global]\nindex-url = {address}\n[install]\nextra-index-url = {extra}\n")
    done = step.judge("helper\n", PIP_UPGRADE="1", PIP_PRE="1", PIP_TARGET=str(tmp_path / "t"), UV_INDEX=extra)
    assert done.returncode == 0, done.stderr
    assert step.image.version("helper") == "1.5"
    for key in ("extra-index-url", "upgrade", "pre", "target", "UV_INDEX"):
        assert f"judge: VLLM: {key} of the machine's configuration is not used here" in done.stdout


def test_the_machines_transport_is_kept(step: Step, tmp_path: Path) -> None:
    step.image.write("pip.conf", f"[global]\nindex-url = {(tmp_path / 'nowhere').as_uri()}\n")
    folder = tmp_path / "wheels"
    wheels.index(folder, [Wheel("helper", "3.0")])
    found = step.install("helper\n", PIP_FIND_LINKS=str(folder / "files"), PIP_NO_INDEX="1")
    assert found == {"helper": "3.0"}


@pytest.mark.parametrize("version", ["22.3", "newest"])
def test_every_option_that_a_pip_has_is_kept_or_told_or_only_its_manner(step: Step) -> None:
    """Options that only a later pip has are told too: a list of what is not heard would always be too short."""
    listed = step.image.start("-m", "pip", "install", "--help").stdout
    options = {name for name in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", listed) if name not in KEPT}
    assert {"no-deps", "constraint", "pre", "abi", "src"} < options
    address = (step.image.root / "pip.conf").read_text(encoding="utf-8")
    step.image.write("pip.conf", address + "[install]\n" + "".join(f"{name} = 1\n" for name in sorted(options)))
    done = step.judge("helper\n")
    assert done.returncode == 0, done.stderr
    told = set(re.findall(r"judge: VLLM: (\S+) of the machine's configuration is not used here", done.stdout))
    assert told == options - IDLE


def test_each_word_of_the_machine_on_how_to_reach_packages_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {f"PIP_{name.upper().replace('-', '_')}": "1" for name in KEPT} | {"PIP_KEYRING_PROVIDER": "disabled"}
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    environment, told = judge.pip_environment()
    assert given.items() <= environment.items()
    assert not set(told) & KEPT


def test_a_source_distribution_is_not_run(step: Step, tmp_path: Path) -> None:
    (tmp_path / "onlysource-1.0").mkdir()
    (tmp_path / "onlysource-1.0" / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    shutil.make_archive(str(tmp_path / "links" / "onlysource-1.0"), "gztar", tmp_path, "onlysource-1.0")
    assert "No matching distribution found for onlysource" in step.refusal(
        "onlysource\n", PIP_FIND_LINKS=str(tmp_path / "links")
    )
    assert not (tmp_path / "ran").exists()


ENTRY = {
    "is_direct": False,
    "metadata": {"name": "A_b", "version": "1.0", "requires_dist": ["c>1"]},
    "download_info": {
        "url": "https://user:word@host.invalid/a.whl#sha256=1",
        "archive_info": {"hash": "sha256=" + "0" * 64},
    },
}


def report(**changes: Any) -> str:
    return json.dumps({"version": "1", "install": [ENTRY], **changes})


@pytest.mark.parametrize(
    ("info", "is_direct", "kind"),
    [
        ({"vcs_info": {"vcs": "git", "commit_id": "1" * 40}}, True, "a repository"),
        ({"dir_info": {"editable": True}}, True, "a path"),
        ({"dir_info": {}}, False, "a path"),
        ({"archive_info": {"hashes": {"sha256": "0" * 64}}}, True, "an address"),
        ({"archive_info": {"hashes": {"sha256": "0" * 64}}}, False, ""),
    ],
)
def test_what_no_index_has_given_is_known(tmp_path: Path, info: dict[str, Any], is_direct: bool, kind: str) -> None:  # noqa: FBT001
    entry = {"is_direct": is_direct, "metadata": ENTRY["metadata"], "download_info": {"url": "file:///a", **info}}
    (tmp_path / "report.json").write_text(report(install=[entry]))
    (item,) = judge.read_plan(tmp_path / "report.json")
    assert item.address == kind


@pytest.mark.parametrize("version", ["0", "1"])
def test_both_known_reports_are_read(tmp_path: Path, version: str) -> None:
    (tmp_path / "report.json").write_text(report(version=version))
    (item,) = judge.read_plan(tmp_path / "report.json")
    assert (item.name, item.version, item.sha256) == ("a-b", "1.0", "0" * 64)
    assert item.url == "https://host.invalid/a.whl"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        report()[:-9],
        "[]",
        "null",
        "{}",
        report(version="2"),
        report(version=1),
        report(install=None),
        report(install={}),
        report(install=""),
        report(install=[{}]),
        report(install=["a"]),
        report(install=[{**ENTRY, "metadata": {"name": "a"}}]),
        report(install=[{**ENTRY, "download_info": {"url": "file:///a"}}]),
        report(install=[{key: ENTRY[key] for key in ("metadata", "download_info")}]),
        report(install=[{**ENTRY, "download_info": {"url": "https://h/a", "archive_info": {"hash": "md5=1"}}}]),
    ],
)
def test_a_report_that_is_not_understood_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    with pytest.raises(judge.Fault, match="pip's report cannot be judged"):
        judge.read_plan(tmp_path / "report.json")


def test_a_chain_follows_extras_and_what_is_installed() -> None:
    wanted = [(Requirement("a[x]"), "f:1")]
    needs = [*map(Requirement, ["b>1; extra == 'x'", "c; extra == 'y'", "a[z]", "d; extra == 'z'"])]
    plan = [judge.Item("a", "1.0", "", "", needs)]
    names = [requirement.name for requirement, _ in judge.asks(wanted, plan)]
    assert names == ["a", "b", "a", "a", "d"]


def test_only_the_judged_bytes_are_installed(step: Step) -> None:
    """Whatever an index answers the second time: another hash is not installed."""
    step.judge("plain\n")
    code = (
        "import judge, pathlib, tempfile; root = pathlib.Path(__import__('sys').argv[1])\n"
        "found = judge.Judge(root, 'VLLM', pathlib.Path(tempfile.mkdtemp()))\n"
        "found.install_exactly([judge.Item('helper', '1.5', '', '0' * 64, [])])"
    )
    done = step.image.start("-c", code, str(step.image.root), PYTHONPATH=str(wheels.INSIDE))
    assert "pip did not install the judged plan" in done.stderr
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert step.image.version("helper") is None


def test_a_plan_that_pip_cannot_install_is_told_and_no_success(step: Step) -> None:
    (step.image.site / "helper").write_text("a file, where the distribution has a folder")
    told = step.refusal("helper\n")
    assert "pip did not install the judged plan" in told
    assert "helper" in told.partition("judged plan")[2]


def test_removal_uses_pip_where_there_is_a_record(step: Step) -> None:
    done = step.image.run("judge", "remove", "Plain")
    assert (done.returncode, done.stdout) == (0, "judge: remove: 1 distributions, done\n"), done.stderr
    assert step.image.version("plain") is None


def test_a_removal_that_pip_refuses_is_refused(step: Step) -> None:
    metadata = next(step.image.site.glob("plain-*.dist-info")) / "METADATA"
    metadata.write_text(metadata.read_text("utf-8").replace("Name: plain", "Name: plain ="), "utf-8")
    done = step.image.run("judge", "remove", "plain")
    assert done.returncode == 1, done.stdout
    assert "judge: remove: pip uninstall: ERROR: Invalid requirement: 'plain ='" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuchthing"], "nosuchthing is not installed"),
        (["Torch"], "Torch is sealed"),
        (["--optional", "triton"], "triton is sealed"),
    ],
)
def test_removal_refuses_what_it_should_not_do(step: Step, arguments: list[str], says: str) -> None:
    done = step.image.run("judge", "remove", *arguments)
    assert done.returncode == 1
    assert f"judge: remove: {says}" in done.stderr
    assert step.image.version("triton")


def test_the_seal_of_the_tests_is_the_one_that_the_program_makes(step: Step) -> None:
    before = step.image.read("seal.json")["distributions"]
    assert step.image.run("seal", "create", *SEALED).returncode == 0
    after = step.image.read("seal.json")["distributions"]
    assert all(after[name]["version"] == rule["version"] for name, rule in before.items())


# A rule by itself


def judging(folder: Path, *sealed: str, **policy: Any) -> judge.Judge:
    """The judge of a base that has these distributions."""
    texts = {"policy.json": {**POLICY, **policy}, "sets/VLLM.json": RULES,
             "seal.json": {"distributions": {name: {"version": "1.0"} for name in sealed}, "modules": []}}  # fmt: skip
    for name, value in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return judge.Judge(folder, "VLLM", folder)


def found(
    rule: Callable[..., Iterable[tuple[str, ...]]], judged: judge.Judge, name: str, address: str = ""
) -> list[str]:
    item = judge.Item(name, "1.0", "https://host.invalid/a.whl", "0" * 64, [], address)
    return [text for text, *_ in rule(judged, item)]


def test_a_pip_that_writes_no_report_is_not_judged_by_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pip that can be had ends with 0 and without a report: here one does."""
    judged = judging(tmp_path, "torch")
    (tmp_path / "report.json").write_text(report())
    monkeypatch.setattr(judge, "pip", lambda *_, **__: (0, ""))
    with pytest.raises(judge.Fault, match="pip's report cannot be judged"):
        judged.dry_run([(Requirement("helper"), "f:1")])


def test_no_member_of_torchs_family_comes_where_the_base_has_none(tmp_path: Path) -> None:
    judged = judging(tmp_path, "torch")
    family = ["pytorch-triton-rocm", "torchaudio", "torchvision", "triton", "triton-rocm"]
    assert [name for name in [*family, "torch", "helper"] if found(judge.absent_family, judged, name)] == family
    assert found(judge.absent_family, judging(tmp_path), "torch")


def test_a_name_that_would_be_sealed_is_a_strangers_where_the_base_has_none(tmp_path: Path) -> None:
    judged = judging(tmp_path, "torch")
    assert found(judge.absent_sealed, judged, "apex") == ["is sealed as apex, and the base has none"]
    assert found(judge.absent_sealed, judged, "torch") == found(judge.absent_sealed, judged, "helper") == []


def test_what_comes_from_an_address_is_vouched_for_by_no_index(tmp_path: Path) -> None:
    told = "comes from an address, https://host.invalid/a.whl: no index vouches for it"
    assert found(judge.direct, judging(tmp_path), "helper", "an address") == [told]
    assert found(judge.direct, judging(tmp_path), "helper") == []


def test_a_plan_is_asked_about_by_every_rule(step: Step, tmp_path: Path) -> None:
    """A name that is sealed elsewhere, and one that a dependency has by its address."""
    wheels.index(tmp_path / "more", [Wheel("apex", "1.0"), Wheel("helper", "7.0")])
    (helper,) = (tmp_path / "more" / "files").glob("helper-7.0*")
    wheels.index(tmp_path / "more", [Wheel("wantsfile", "1.0", (f"helper @ {helper.as_uri()}",))])
    told = step.refusal("apex\nwantsfile\n", PIP_FIND_LINKS=str(tmp_path / "more" / "files"))
    assert "apex 1.0 is sealed as apex, and the base has none" in told
    assert f"helper 7.0 comes from an address, {helper.as_uri()}: no index vouches for it" in told
