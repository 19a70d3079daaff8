"""Plans foreseen with a real uv on indexes of the test's own: what passes, what is refused, and what nobody could ask."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import wheels
from manifests import REAL, ROOT, SECOND, changed
from packaging.utils import canonicalize_name
from wheels import Wheel

from builder import facts, lists, manifest, resolve, uv
from builder.resolve import NotAskedError, Plan

MANIFEST = manifest.load(REAL)
FACTS = facts.of(MANIFEST, ROOT)
TORCH = FACTS.distributions["torch"]
LIST = "vllm/requirements/rocm.txt"
ADDED = ("joblib 1.5.0", "pandas 2.3.0", "scipy 1.17.1", "sentencepiece 0.2.1")  # by the manifest
INDEX = (
    *(Wheel(name, version) for name, _, version in (text.partition(" ") for text in ADDED)),
    Wheel("clean", "1.0", ("helper>=1", "torch>=2.0", "ghost; extra == 'all'")),
    Wheel("clean", "2.0", ("helper>=1", "nosuchthing")),
    Wheel("helper", "1.5"),
    Wheel("torch", "2.13.0", ("nvidia-cublas",)),
    Wheel("nvidia-cublas", "13.0"),
    Wheel("wantsnew", "1.0", ("torch>2.12.0",)),
    Wheel("indirect", "1.0", ("wantsnew",)),
    Wheel("wantscuda", "1.0", ("nvidia-cublas",)),
    Wheel("wantsvllm", "1.0", ("vllm",)),
    Wheel("wantsnewvllm", "1.0", ("vllm>0.29.0",)),
    Wheel("vllm", "0.30.0"),
    Wheel("triton-rocm", "3.7.0"),
    Wheel("numpy", "1.26.4"),
    Wheel("numpy", "2.4.6"),
    Wheel("modern", "1.0", ("numpy>=2",)),
    Wheel("pyarrow", "25.0"),
    Wheel("pyarrow", "26.0"),
    Wheel("newarrow", "1.0", ("pyarrow>=26",)),
    Wheel("opencv-python-headless", "4.11.0.86", ("numpy<2",)),
    Wheel("opencv-python-headless", "4.13.0", ("numpy>=2",)),
    Wheel("user-of-opencv", "1.0", ("opencv-python-headless>=4.0",)),
    Wheel("transformers", "5.12.0", ("helper",)),
    Wheel("datasets", "4.0.0"),
    Wheel("flash-linear-attention", "0.4.2"),
    Wheel("excluding", "1.0", ("helper>=1,!=1.4,<2",)),
    Wheel("rocm", "9.0"),
)


@dataclass(frozen=True)
class World:
    """A source's tree, and what uv keeps."""

    tree: Path
    cache: Path

    def plan(self, text: str, *edits: tuple[str, str], source: str = "vllm", **options: Any) -> Plan:
        """The plan of a source whose requirement file has that text."""
        written = changed(REAL, *edits) if edits else MANIFEST
        requirements = written.sources[source].requirements
        assert requirements and requirements.file  # noqa: PT018
        (self.tree / requirements.file).parent.mkdir(parents=True, exist_ok=True)
        (self.tree / requirements.file).write_text(text)
        return resolve.plan(written, FACTS, written.sources[source], self.tree, cache=self.cache, **options)

    def planned(self, text: str, *edits: tuple[str, str], **options: Any) -> dict[str, str]:
        """What it would install beyond what the manifest adds, without a refusal."""
        found = self.plan(text, *edits, **options)
        assert found.passed, found
        return {one.name: one.version for one in found.planned if f"{one.name} {one.version}" not in ADDED}


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    wheels.index(folder, INDEX)
    return folder


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, packages: Path) -> Callable[..., None]:
    """Set pip's options, and forget this machine's."""

    def configure(**options: str) -> None:
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
            monkeypatch.delenv(name)
        for name, value in {"config_file": os.devnull, **options}.items():
            monkeypatch.setenv(f"PIP_{name.upper()}", value)

    configure(index_url=f"{packages.as_uri()}/simple")
    return configure


@pytest.fixture
def world(tmp_path: Path, pip: Callable[..., None]) -> World:  # noqa: ARG001 (no test asks the machine's index)
    (tmp_path / "tree").mkdir()
    return World(tmp_path / "tree", tmp_path / "cache")


@contextlib.contextmanager
def serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address on loopback at which a handler answers."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """An index that says nothing of how long its answers are good, and remembers what it was asked."""

    asked: ClassVar[list[str]] = []

    def log_message(self, *_: Any) -> None:
        self.asked.append(self.path)

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Last-Modified":
            super().send_header(keyword, value)


@pytest.fixture
def served(packages: Path) -> Iterator[str]:
    """The index on loopback."""
    Quiet.asked.clear()
    with serving(functools.partial(Quiet, directory=str(packages))) as address:
        yield address


def test_a_clean_set_passes_and_says_who_asks(world: World) -> None:
    found = world.plan("clean<2 # for a reason\n")
    assert found.passed
    by_name = {one.name: one for one in found.planned}
    assert set(by_name) == {"clean", "helper", *(text.split()[0] for text in ADDED)}
    assert by_name["helper"].requested_by == f"clean 1.0 asks for helper>=1, {LIST}:1 asks for clean<2"
    assert "images/rocm7.14.yaml, sources.vllm.requirements asks for scipy==1.17.1" in by_name["scipy"].requested_by


def test_what_the_base_has_stays_while_it_fits(world: World) -> None:
    assert world.planned("torch>=2.12.0\ndatasets\ntriton\nrocm\n") == {}
    unsealed = ("  rocm:\n    reason: ROCm itself is installed by pip in this base\n", "")
    assert world.planned("rocm\n", unsealed) == {}, "although it is a pre-release, and the index has a release"
    assert world.planned("transformers>=5\n") == {"transformers": "5.12.0", "helper": "1.5"}


def test_a_version_whose_requirements_cannot_be_met_gives_way_to_an_older_one(world: World) -> None:
    assert world.planned("clean\n") == {"clean": "1.0", "helper": "1.5"}


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("torch>=2.13\n", f"{LIST}:1 asks for torch>=2.13"),
        (
            "helper\nindirect\n",
            f"wantsnew 1.0 asks for torch>2.12.0, indirect 1.0 asks for wantsnew, {LIST}:2 asks for indirect",
        ),
    ],
)
def test_a_sealed_torch_that_a_set_would_replace_is_refused_with_who_asks(world: World, text: str, asked: str) -> None:
    found = world.plan(text)
    (refusal,) = found.refusals
    assert refusal.package == "torch"
    assert refusal.what == f"the base has torch {TORCH}"
    assert refusal.requested_by == asked
    assert refusal.change == ("sources.vllm.requirements",)
    assert "torch" in found.no_plan
    assert not found.passed
    assert not found.planned


def test_a_forbidden_name_is_refused_with_who_asks_and_both_keys(world: World) -> None:
    found = world.plan("clean<2\nwantscuda\ntriton-rocm\n")
    assert not found.no_plan
    cuda, triton = sorted(found.refusals[:2], key=lambda refusal: refusal.package)
    assert str(cuda) == (
        "nvidia-cublas 13.0 is forbidden as nvidia-*: CUDA libraries come with a CUDA build of torch\n"
        f"    wantscuda 1.0 asks for nvidia-cublas, {LIST}:2 asks for wantscuda\n"
        "    change sources.vllm.requirements or forbidden.nvidia-*"
    )
    assert triton.what.startswith("triton-rocm 3.7.0 is of torch's family, and the base has none")


def test_a_source_that_is_built_here_serves_and_is_not_replaced(world: World) -> None:
    assert world.planned("wantsvllm\n") == {"wantsvllm": "1.0"}
    (refusal,) = world.plan("wantsnewvllm\n").refusals
    assert refusal.what == "vllm 0.30.0 is built here from the source vllm"
    assert refusal.change == ("sources.vllm.requirements", "sources.vllm")


@pytest.mark.parametrize(
    ("line", "package", "held"),
    [("modern", "numpy", "numpy==1.26.4"), ("newarrow", "pyarrow", "pyarrow<26")],
)
def test_a_conflict_with_a_constraint_names_both_sides(world: World, line: str, package: str, held: str) -> None:
    found = world.plan(f"{line}\n")
    (refusal,) = found.refusals
    assert (refusal.package, refusal.what) == (package, f"the manifest holds {held}")
    assert refusal.requested_by.endswith(f"{LIST}:1 asks for {line}")
    assert refusal.change == ("sources.vllm.requirements", f"constraints.{package}")
    assert f"all versions of {line} depend on {package}" in found.no_plan


def test_a_set_without_a_plan_names_the_chain(world: World) -> None:
    found = world.plan("clean>=2\n")
    assert "nosuchthing was not found in the package registry and clean>=2.0 depends on nosuchthing" in found.no_plan
    assert not found.refusals
    assert not found.passed


def test_an_override_is_planned_without_dependencies_and_serves_its_dependants(world: World) -> None:
    assert world.planned("opencv-python-headless>=4.13\n") == {"opencv-python-headless": "4.11.0.86"}
    found = world.planned("opencv-python-headless>=4.13\nuser-of-opencv\n")
    assert found == {"opencv-python-headless": "4.11.0.86", "user-of-opencv": "1.0", "numpy": "1.26.4"}


def test_an_override_that_no_index_has_is_no_plan(world: World) -> None:
    found = world.plan("opencv-python-headless>=4.13\nhelper\n", ("4.11.0.86", "4.11.0.99"))
    assert "opencv-python-headless==4.11.0.99" in found.no_plan


def test_a_marker_is_asked_of_the_base(world: World) -> None:
    here, elsewhere = "python_full_version == '3.12.3'", "python_full_version != '3.12.3'"
    text = f"helper; {here}\nnosuchthing; {elsewhere}\nopencv-python-headless; {elsewhere}\nclean<2; platform_machine == 'arm64'\n"
    assert world.planned(text) == {"helper": "1.5"}
    assert "opencv-python-headless" in world.planned(f"opencv-python-headless; {here} and sys_platform == 'linux'\n")


def test_lines_are_left_out_and_added_as_the_manifest_says(world: World) -> None:
    (world.tree / "requirements").mkdir()
    (world.tree / "requirements" / "common.txt").write_text("helper\n")
    assert world.planned("-r common.txt\ntilelang==0.1.10\n") == {"helper": "1.5"}


def test_hostile_lines_are_told_before_anything_is_asked(world: World, pip: Callable[..., None]) -> None:
    pip(index_url="http://127.0.0.1:9")
    found = world.plan("--extra-index-url https://example.invalid\nhelper\n-e .\n")
    assert [refusal.what.partition(": ")[0] for refusal in found.refusals] == [f"{LIST}:1", f"{LIST}:3"]
    assert {refusal.change for refusal in found.refusals} == {("sources.vllm.requirements",)}


def test_a_later_set_stands_on_the_earlier_ones(world: World) -> None:
    first = world.plan("helper\npyarrow<25.5\n")
    assert {"flash-linear-attention", "helper", "pyarrow"} == set(world.planned("helper\npyarrow\n", source="vime"))
    second = world.plan("helper\npyarrow\n", source="vime", so_far=[first])
    assert [one.name for one in second.planned] == ["flash-linear-attention"]
    assert "one is planned as if it were not" not in " ".join(second.assumed)
    assert "this one is planned as if it were not" in " ".join(world.plan("helper\n", source="vime").assumed)


def test_what_is_assumed_is_said(world: World, pip: Callable[..., None], packages: Path) -> None:
    pip(index_url=f"{packages.as_uri()}/simple", extra_index_url="https://example.invalid/simple", upgrade="1")
    assumed = world.plan("helper\n").assumed
    count = len(FACTS.distributions)
    assert f"the base has the {count} distributions of images/bases/primus-v26.4.yaml, and no others" in assumed
    assert "what these require is there, and each has a RECORD: neither is among the facts" in assumed
    assert "extra-index-url of this machine's pip is not used, as in the image" in assumed
    assert "upgrade of this machine's pip is not used, as in the image" in assumed


def test_a_source_archive_is_not_built(world: World, pip: Callable[..., None], packages: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "onlysource-1.0.tar.gz").write_bytes(b"never opened")
    pip(index_url=f"{packages.as_uri()}/simple", find_links=f"{tmp_path / 'links'} {tmp_path / 'not-there'}")
    assert "onlysource" in world.plan("onlysource\n").no_plan


def test_a_wheel_beside_the_index_is_seen(
    world: World, pip: Callable[..., None], packages: Path, tmp_path: Path
) -> None:
    wheels.index(tmp_path / "links", [Wheel("helper", "3.0")])
    pip(index_url=f"{packages.as_uri()}/simple", find_links=str(tmp_path / "links" / "files"))
    assert world.planned("helper\n") == {"helper": "3.0"}


def test_offline_the_cache_is_enough_and_without_it_nobody_was_asked(
    world: World, pip: Callable[..., None], served: str
) -> None:
    pip(index_url=f"{served}/simple")
    with pytest.raises(NotAskedError, match="network was disabled"):
        world.plan("clean<2\n", offline=True)
    online = world.plan("clean<2\nwantscuda\n")
    assert world.plan("clean<2\nwantscuda\n", offline=True) == online
    with pytest.raises(NotAskedError, match="network was disabled"):
        world.plan("modern\n", offline=True)


def test_what_the_index_has_just_said_is_not_asked_again(world: World, pip: Callable[..., None], served: str) -> None:
    pip(index_url=f"{served}/simple")
    first = world.plan("clean<2\nwantscuda\n")
    assert any("clean" in path for path in Quiet.asked)
    Quiet.asked.clear()
    assert world.plan("clean<2\nwantscuda\n") == first
    assert Quiet.asked == []


def test_an_index_that_does_not_answer_is_no_verdict_and_no_password_is_told(
    world: World, pip: Callable[..., None]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        pip(index_url=f"http://somebody:secret@127.0.0.1:{taken.getsockname()[1]}/simple", retries="0")
        with pytest.raises(NotAskedError) as caught:
            world.plan("helper\n")
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_an_index_that_refuses_to_answer_is_no_verdict(world: World, pip: Callable[..., None], status: int) -> None:
    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Refusing) as address:
        pip(index_url=address, retries="0")
        with pytest.raises(NotAskedError, match=str(status)):
            world.plan("helper\n")


def test_an_index_that_keeps_silent_is_left_at_the_time_limit(world: World, pip: Callable[..., None]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        pip(index_url=f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        with pytest.raises(NotAskedError, match=r"no plan within 1\.5 s"):
            world.plan("helper\n", time_limit_s=1.5)


@pytest.mark.parametrize(
    ("ranges", "written"),
    [
        ("*", "a"),
        (">=1.0, <2.0.0", "a<2.0.0,>=1.0"),
        (">=20.0.24, <20.21.1 | >=20.21.1+", "a!=20.21.1,>=20.0.24"),
        ("==2.12.0+rocm7", "a==2.12.0+rocm7"),
        ("<1 | >=3", "a"),
    ],
)
def test_a_range_of_uv_is_written_as_people_write_it(ranges: str, written: str) -> None:
    log = f"DEBUG Adding transitive dependency for b==1.0: a{{sys_platform == 'linux'}}{ranges}\n"
    assert uv._edges(log) == {("b", "1.0"): [written]}  # noqa: SLF001 (its log is no interface)


# The judge in an image, with pip, and the plan foreseen, with uv.


@pytest.fixture
def image(tmp_path: Path, packages: Path, tmp_path_factory: pytest.TempPathFactory) -> wheels.Image:
    there = {
        **FACTS.distributions,
        **{name: tool.version for name, tool in MANIFEST.build_tools.items()},
        "vllm": "0.29.0",
    }
    pips = tmp_path_factory.getbasetemp() / "pip-for-resolve"
    base = [Wheel(name, version) for name, version in there.items()]
    made = wheels.image(tmp_path / "image", wheels.pip_files(pips, "bundled"), base)
    sealed = {name for pattern in MANIFEST.sealed for name in FACTS.matching(pattern)}
    seal = {canonicalize_name(name): {"version": FACTS.distributions[name]} for name in sealed}
    made.write("seal.json", {"schema": 1, "distributions": seal, "pip_check": [], "modules": {}})
    policy = json.loads(lists.text(lists.policy(MANIFEST))) | {"installer": {}}  # no uv is in that index
    made.write("policy.json", policy)
    made.write("sets/REQUIREMENTS_VLLM.json", lists.requirement_set(MANIFEST.sources["vllm"]) | {"file": LIST})
    made.write("pip.conf", f"[global]\nindex-url = {packages.as_uri()}/simple\n")
    return made


@pytest.mark.parametrize(
    "text",
    [
        "clean\ntransformers>=5\nopencv-python-headless\nuser-of-opencv\nexcluding\n",
        "torch>=2.0\ndatasets\nrocm\nwantsvllm\n",
        "torch>=2.13\n",
        "helper\nindirect\nmodern\n",
        "wantscuda\nwantsnewvllm\ntriton-rocm\nclean\n",
        "newarrow\n",
        "--pre\nhelper\n",
    ],
)
def test_pip_and_uv_come_to_the_same(image: wheels.Image, world: World, text: str) -> None:
    image.write(LIST, text)
    done = image.run("judge", "install", "REQUIREMENTS_VLLM")
    found = world.plan(text)
    assert found.passed == (done.returncode == 0), done.stderr
    if found.passed:
        installed = image.read("plans/REQUIREMENTS_VLLM.json")["distributions"]
        assert {one["name"]: one["version"] for one in installed} == {one.name: one.version for one in found.planned}
    for refusal in found.refusals:
        assert refusal.what in done.stderr
        assert refusal.requested_by in done.stderr
        assert not refusal.package or " or ".join(refusal.change) in done.stderr
    refused = [line for line in done.stderr.splitlines() if "    change " in line]
    assert len(refused) == len([refusal for refusal in found.refusals if refusal.package])


# A base that ships vLLM


@pytest.mark.parametrize("text", ["wantsnewvllm\n", "vllm==0.30.0\n"])
def test_a_set_that_would_replace_the_vllm_of_the_base_is_refused(world: World, text: str) -> None:
    second = manifest.load(SECOND)
    (world.tree / "requirements.txt").write_text(text)
    known = facts.of(second, ROOT)
    found = resolve.plan(second, known, second.sources["vime"], world.tree, cache=world.cache)
    assert not found.passed
    (refusal,) = found.refusals
    assert (refusal.package, refusal.what) == ("vllm", "the base has vllm 0.29.0+rocm723")
    assert "sources.vime.requirements" in refusal.change


def test_a_set_without_a_file_is_planned_of_what_is_added(world: World) -> None:
    second = manifest.load(SECOND)
    found = resolve.plan(second, facts.of(second, ROOT), second.sources["transformer_engine"], None, cache=world.cache)
    assert "einops>=0.8" in found.no_plan  # which this index does not have
