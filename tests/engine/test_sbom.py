"""The software of an image as CycloneDX, asked of an image with a real Python in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import hollow
import pytest
import pythonic
from click.testing import CliRunner
from conftest import FACTS, MANIFEST
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from pythonic import INSTALLED

from builder import cli, made, sbom
from builder.engine import Engine
from builder.errors import BaseFactsError


@pytest.fixture(scope="module")
def tag(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    found = pythonic.image(engine, tmp_path_factory.mktemp("context"))
    yield found
    engine.remove_image(found)


@pytest.fixture(scope="module")
def bom(engine: Engine, tag: str) -> dict[str, Any]:
    text = sbom.of(engine, made.read(engine, tag), FACTS)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found: dict[str, Any] = json.loads(text)
    return found


def properties(component: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in component.get("properties", ())}


def test_it_is_valid_against_its_schema_and_names_the_image(bom: dict[str, Any], tag: str) -> None:
    assert bom["specVersion"] == "1.6"
    assert bom["metadata"]["component"]["name"] == tag
    assert properties(bom["metadata"]["component"])["vime-image:gpu_targets"] == "gfx942"


def test_each_distribution_has_its_version_its_origin_and_its_flavour(bom: dict[str, Any]) -> None:
    found = {entry["name"]: entry for entry in bom["components"] if entry["bom-ref"].startswith("python:")}
    assert {name: found[name]["version"] for name in INSTALLED} == INSTALLED
    assert {name: properties(found[name])["vime-image:origin"] for name in INSTALLED} == {
        "torch": "base",
        "numpy": "plan VLLM_REQUIREMENTS",
        "vllm": "source vllm",
        "stranger": "unknown",
        "ninja": "build tool",
    }
    assert properties(found["torch"])["vime-image:flavour"] == "rocm7.14.0"
    assert found["numpy"]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert found["numpy"]["purl"] == "pkg:pypi/numpy@1.26.4"


def test_what_a_distribution_needs_is_a_dependency(bom: dict[str, Any]) -> None:
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in bom["dependencies"]}
    assert needs["python:vllm"] == ["python:numpy"]


def test_debian_packages_are_those_that_are_installed(bom: dict[str, Any]) -> None:
    (package,) = [entry for entry in bom["components"] if entry["bom-ref"].startswith("debian:")]
    assert (package["name"], package["version"]) == ("libc6", "2.36-9+deb12u9")
    assert package["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64"
    assert properties(package)["vime-image:source"] == "glibc"


def test_git_sources_have_their_repository_and_commit(bom: dict[str, Any]) -> None:
    found = {entry["name"]: entry for entry in bom["components"] if entry["bom-ref"].startswith("git:")}
    assert set(found) == set(MANIFEST.sources)
    vllm = MANIFEST.sources["vllm"]
    assert (found["vllm"]["version"], properties(found["vllm"])["vime-image:commit"]) == (vllm.tag, vllm.commit)
    assert found["vllm"]["purl"] == f"pkg:github/vllm-project/vllm@{vllm.commit}"
    assert found["vllm"]["externalReferences"] == [{"type": "vcs", "url": vllm.repository}]


def test_an_image_without_a_list_of_packages_says_so(engine: Engine, tag: str) -> None:
    found: dict[str, Any] = {"system": None, "distributions": {}}
    text = sbom.written(made.read(engine, tag), found, None, None)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    told = properties(json.loads(text)["metadata"]["component"])
    assert told["vime-image:debian_packages"] == "unknown: it has no /var/lib/dpkg/status"


def test_an_image_whose_python_does_not_answer_is_an_error_and_no_empty_list(engine: Engine) -> None:
    tag = hollow.image(engine)
    try:
        with pytest.raises(BaseFactsError, match="cannot be read"):
            sbom.of(engine, made.read(engine, tag), FACTS)
    finally:
        engine.remove_image(tag)


def test_the_command_prints_it_and_nothing_else(engine: Engine, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    done = CliRunner().invoke(cli.main, ["sbom", tag])
    assert (done.exit_code, json.loads(done.stdout)["bomFormat"]) == (0, "CycloneDX")
