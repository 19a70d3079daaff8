from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manifests import REAL, SECOND, changed

from builder import base_pin, facts, manifest
from builder.errors import ManifestError

if TYPE_CHECKING:
    from builder.manifest import Manifest

ROOT = Path(__file__).parents[2]
GOOD = ROOT / "tests/manifests/good"
BASES = sorted((ROOT / "images/bases").glob("*.yaml"))


def complaint(written: Manifest, root: Path = ROOT) -> str:
    with pytest.raises(ManifestError) as caught:
        facts.of(written, root)
    return str(caught.value)


def facts_with(tmp_path: Path, old: str, new: str) -> Path:
    text = BASES[0].read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "base.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", BASES, ids=lambda path: path.stem)
def test_facts_load(path: Path) -> None:
    known = facts.load(path)
    assert known.python.executable.startswith("/")
    assert known.path == path
    assert known == facts.load(path)


@pytest.mark.parametrize("path", BASES, ids=lambda path: path.stem)
def test_every_kind_of_fact_cites_its_source(path: Path) -> None:
    known = facts.load(path)
    assert {"digest", "distributions", "env", "python"} <= set(known.sources)


@pytest.mark.parametrize("path", [REAL, *sorted(GOOD.glob("small.yaml"))], ids=lambda path: path.stem)
def test_facts_of_a_manifest_are_those_of_its_base(path: Path) -> None:
    written = manifest.load(path)
    known = facts.of(written, ROOT)
    assert (known.image, known.digest) == (written.base.image, written.base.digest)


def test_a_version_stays_as_it_stands(tmp_path: Path) -> None:
    known = facts.load(facts_with(tmp_path, "grouped-gemm: 1.1.4", "grouped-gemm: 1.10"))
    assert known.distributions["grouped-gemm"] == "1.10"


def test_another_digest_than_the_facts_is_refused() -> None:
    real = manifest.load(REAL)
    digest = real.base.digest.replace("8c8e", "8c8f")
    said = complaint(changed(REAL, (real.base.digest, digest)))
    assert said.startswith(f"{REAL}:9:3: error: base.digest is {digest}, the facts are of {real.base.digest}")
    assert "images/bases/primus-v26.4.yaml:4:1" in said


def test_another_image_than_the_facts_is_refused() -> None:
    said = complaint(changed(REAL, ("image: rocm/primus:v26.4", "image: rocm/primus:v26.5")))
    assert "base.image is rocm/primus:v26.5, the facts are of rocm/primus:v26.4" in said


def test_an_unknown_digest_contradicts_nothing() -> None:
    real = manifest.load(REAL)
    assert facts.of(changed(REAL, (real.base.digest, "unknown")), ROOT).digest == real.base.digest


def test_facts_that_are_not_there_are_named_with_what_is() -> None:
    said = complaint(changed(REAL, ("facts: primus-v26.4", "facts: primus-v26.3")))
    assert said.startswith(f"{REAL}:10:3: error: no file")
    assert "did you mean 'primus-v26.4'?" in said


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("aiter", "did you mean 'amd-aiter'?"),
        ("triton-amd", "did you mean 'triton'"),
        ("transformer_engines", "did you mean 'transformer-engine'"),
        ("rocm-skd-*", "did you mean 'rocm'"),
        ("bitsandbytes", "write `optional: true`"),
    ],
)
def test_a_sealed_name_that_the_base_lacks_is_named_with_what_may_be_meant(name: str, meant: str) -> None:
    said = complaint(changed(REAL, ("  flash-attn:\n", f"  {name}:\n")))
    assert f"error: the base has no distribution {name!r}\n    hint: {meant}" in said


def test_an_optional_name_may_be_absent() -> None:
    written = changed(REAL, ("  flash-attn:\n", "  bitsandbytes:\n    optional: true\n"))
    assert facts.of(written, ROOT).matching("bitsandbytes") == []


def test_a_forbidden_variable_that_the_base_sets_is_refused() -> None:
    said = complaint(changed(REAL, ("  ROCR_VISIBLE_DEVICES:\n", "  GPU_ARCHS:\n")))
    assert "error: the base sets 'GPU_ARCHS' to 'native'\n    hint: a Dockerfile cannot unset it" in said


def test_a_target_that_the_base_s_torch_has_no_code_for_is_refused_at_its_place() -> None:
    said = complaint(changed(REAL, ("gpu_targets: [gfx942, gfx950]", "gpu_targets: [gfx942, gfx90a]")))
    assert f"{REAL}:14:23" in said
    assert "the base's torch has no code for gfx90a" in said
    assert "it has code for gfx942, gfx950" in said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/usr/lib/libamdhip64.so:", "/opt/rocm/lib/libamdhip64.so:"),
        (
            "to: /opt/venv/lib/python3.12/site-packages/_rocm_sdk_devel/lib/libamdhip64.so",
            "to: /opt/rocm/lib/libamdhip64.so",
        ),
        ("/opt/venv/lib/python3.12/site-packages/torch/bin/torch_shm_manager:", "/opt/rocm-7.2.0/bin/tool:"),
        ('value: "1"\n    reason: pins', "value: /opt/rocm/lib\n    reason: pins"),
    ],
)
def test_a_path_of_a_rocm_that_the_base_does_not_have_is_refused_at_its_place(old: str, new: str) -> None:
    said = complaint(changed(REAL, (old, new)))
    assert "this base has no /opt/rocm" in said
    assert "its ROCm is in /opt/venv/lib/python3.12/site-packages/_rocm_sdk_devel" in said


def test_names_match_however_they_are_spelt() -> None:
    known = facts.load(BASES[0])
    assert known.matching("Transformer_Engine") == ["transformer-engine"]
    assert known.matching("rocm-sdk-*") == ["rocm-sdk-core", "rocm-sdk-devel"]
    assert known.matching("rocm_*") == ["rocm-sdk-core", "rocm-sdk-devel"]
    assert known.matching("nothing") == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  version: 3.12.3", "  version: 3.12.x", "version '3.12.x' is no exact version"),
        ("/opt/venv/bin/python\n", "venv/bin/python\n", "'venv/bin/python' is no absolute path"),
        ("system:", "sytem:", "unknown key 'sytem'"),
        ("  - CPATH\n", "  - MAX_JOBS\n", "'MAX_JOBS' has a value in env"),
        ("  torch: ", "  triton: 1\n  torch: ", "key 'triton' stands in line"),
        ("image: rocm/primus:v26.4", "image: rocm/primus:latest", "tag 'latest' of the image moves"),
    ],
)
def test_facts_are_read_as_strictly_as_manifests(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        facts.load(facts_with(tmp_path, old, new))
    assert len(caught.value.problems) == 1
    assert said in str(caught.value)


PUBLISHED = """
image: rocm/primus:v26.4
digest: unknown
sources: {}
system: ubuntu 24.04
python:
  version: 3.12.3
  executable: /opt/venv/bin/python
  site_packages: /opt/venv/lib/python3.12/site-packages
distributions:
  torch: 2.12.0
"""
READ = """
entrypoint: []
rocm_root: /opt/venv/lib/python3.12/site-packages/_rocm_sdk_devel
device_code: [gfx942, gfx950]
tools: [bash, git, g++, "[", x86_64-linux-gnu-gcc-12]
pip_check:
  - mamba-ssm 2.3.1 requires tilelang, which is not installed.
requirements:
  torch: ["triton==3.7.0; platform_system == 'Linux'"]
flavours:
  torch: rocm
"""


def test_what_is_read_from_an_image_may_be_known_or_not(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    path.write_text(PUBLISHED, encoding="utf-8")
    unknown = facts.load(path)
    assert {unknown.entrypoint, unknown.rocm_root, unknown.device_code, unknown.tools, unknown.pip_check} == {None}
    assert (unknown.requirements, unknown.flavours) == (None, None)
    path.write_text(PUBLISHED + READ, encoding="utf-8")
    known = facts.load(path)
    assert known.entrypoint == ()
    assert known.device_code == ("gfx942", "gfx950")
    assert known.tools == ("bash", "git", "g++", "[", "x86_64-linux-gnu-gcc-12")
    assert known.pip_check == ("mamba-ssm 2.3.1 requires tilelang, which is not installed.",)
    assert known.requirements == {"torch": ("triton==3.7.0; platform_system == 'Linux'",)}
    assert known.flavours == {"torch": "rocm"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gfx950", "gfx95", "'gfx95' is no GPU target"),
        ("git,", "a/b,", "'a/b' is no name of a tool"),
        ("torch: rocm", "torch: hip", "'hip' is not 'rocm', 'cuda' or 'cpu'"),
        ("[\"triton==3.7.0; platform_system == 'Linux'\"]", '["triton ~ 3"]', "'triton ~ 3' is no requirement"),
    ],
)
def test_what_is_read_is_held_to_its_kind(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "base.yaml"
    text = PUBLISHED + READ
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        facts.load(path)
    assert said in str(caught.value)


def test_a_base_that_ships_another_version_than_the_tag_says_is_refused() -> None:
    said = complaint(changed(SECOND, ("    tag: v0.29.0\n", "    tag: v0.30.0\n")))
    assert said.startswith(f"{SECOND}:")
    assert "error: the base has vllm 0.29.0+rocm723, the tag is v0.30.0\n    hint: pin the tag of what" in said


def test_a_bump_of_the_shipped_vllm_without_its_base_is_refused() -> None:
    (problem,) = base_pin.facts_problems(changed(SECOND, ("    tag: v0.29.0\n", "    tag: v0.30.0\n")), ROOT)
    assert problem.message == "the base has vllm 0.29.0+rocm723, the tag is v0.30.0"


def test_a_wheel_for_another_python_than_the_base_s_is_refused() -> None:
    said = complaint(changed(SECOND, ("-cp312-cp312-", "-cp311-cp311-")))
    assert "git751f5dd5-cp311-cp311-linux_x86_64.whl is for cp311, the base has Python 3.12.13" in said
