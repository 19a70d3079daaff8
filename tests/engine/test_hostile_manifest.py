"""Hostile values of a manifest in real containers: many at once, each there as exactly the same bytes, and none run."""

from __future__ import annotations

import io
import re
import secrets
import shutil
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import conftest
import fields
import inputs
import pytest

from builder import buildkit, checklist, lists, render
from builder.engine import Engine
from builder.manifest import Manifest

ATTACKS = [
    *("$(touch /pwned)", "`touch /pwned`", ";touch /pwned;", "'; touch /pwned; '", '"; touch /pwned; "', "|touch /pwned"),
    *("\\", "\\\\", '\\"', "$HOME", "${HOME}", "$$", "%s%n", "#", "# syntax=nowhere.invalid/x", "a=b", "~", "*", "!", "é \U0001f600"),
    *("{{ 7 * 7 }}", "{% include 'x' %}", "{# x #}", "RUN touch /pwned", "EOF", "SEAL_BASE", "--mount=type=ssh", "<b>", "' \" \\ $x `"),
]  # fmt: skip
# Programs of the image that steps call, where the base's Python writes down what it is told and what it finds.
WRITER = """#!/bin/bash
printf '%s\\0' "$@" >> /told
while [ $# -gt 0 ]; do
    case $1 in --checkout) mkdir -p "$2/requirements" ;; setup.py) env -0 > /variables ;; esac
    shift
done
"""
PROGRAMS = ("awk", "dirname", "ln", "nproc", "rm", "tail", "tee")


def hostile(dice: Random) -> list[str]:
    drawn = ["".join(dice.choices(inputs.SEEN, k=dice.randrange(1, 9))).strip() for _ in range(20)]
    return [value for value in [*ATTACKS, *drawn] if value and value.isprintable() and "\u200b" not in value]


def manifest_of(dice: Random) -> Manifest:
    """A manifest with hostile texts wherever a text may stand."""
    texts = hostile(dice)
    variables = {f"V{number}": {"value": text, "reason": text} for number, text in enumerate(texts)}

    def reasoned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: dice.choice(texts) if key == "reason" else reasoned(inner) for key, inner in value.items()}
        return tuple(map(reasoned, value)) if isinstance(value, tuple) else value

    value = reasoned(fields.VALUE)
    vllm = {**value["sources"]["vllm"], "build_env": variables}
    more = {"summary": ATTACKS[dice.randrange(len(ATTACKS))] + " x", "env": variables, "entrypoint": tuple(texts)}
    sources = {**value["sources"], "vllm": vllm, "megatron": {**value["sources"]["megatron"], "patches": ()}}
    return fields.read({**value, **more, "sources": sources})


def base(engine: Engine, written: Manifest) -> str:
    """A base with what the steps look for."""
    body = conftest.root_archive()
    with tarfile.open(fileobj=body, mode="a") as archive:
        there = {f"/{name}" for name in archive.getnames()}
        for name in PROGRAMS:
            program = Path(shutil.which(name) or pytest.fail(f"this machine has no {name}")).resolve()
            archive.add(program, f"bin/{name}")
            for library in conftest.libraries(str(program)) - there:
                archive.add(Path(library).resolve(), library.lstrip("/"))
                there.add(library)
        files = {fields.FACTS.python.executable: WRITER, **dict.fromkeys(written.executables, "")}
        files |= {link.to: "" for link in written.links.values()}
        files |= {
            f"{fields.FACTS.python.site_packages}/torch/bin/torch_shm_manager": "",
            "/usr/lib/x": "",
            "/root/x": "",
        }
        for path, text in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    body.seek(0)
    reference = f"vime-images-test/hostile:{secrets.token_hex(4)}"
    engine.import_root(body, reference, ["ENV PATH=/bin"])
    return reference


def content(engine: Engine, image: str, *paths: str) -> bytes:
    """Files of an image, one after the other."""
    with engine.container(image, ["cat", *paths]) as container:
        assert container.wait() == 0, container.output()
        return bytes(engine.api.logs(container.id))


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_values_arrive_as_the_same_bytes_and_nothing_of_them_runs(engine: Engine, seed: int) -> None:
    written = manifest_of(Random(seed))  # noqa: S311 (no secret)
    text = render.render(written, fields.FACTS)
    built = buildkit.build(
        engine, text, arguments={"BASE_IMAGE": base(engine, written)}, watch=lambda _: None, network="none"
    )
    config, image = engine.config(built.image_id), built.image_id
    values = {name: variable.value for name, variable in written.env.items()}
    found = dict(variable.split("=", 1) for variable in config["Env"])
    assert {name: found.get(name) for name in values} == values
    assert config["Entrypoint"] == list(written.entrypoint)
    assert config["WorkingDir"] == written.workdir
    assert config["Labels"]["org.opencontainers.image.description"] == written.summary

    lists_of = {
        "manifest.json": lists.content(written),
        "policy.json": lists.policy(written),
        "checks.json": checklist.wanted(written, fields.FACTS),
    }
    for name, entries in lists_of.items():
        assert content(engine, image, f"{lists.HOME}/{name}") == lists.text(entries).encode()

    variables = dict(line.split("=", 1) for line in content(engine, image, "/variables").decode().split("\0") if line)
    assert {name: variables.get(name) for name in values} == values
    told = content(engine, image, "/told").decode().split("\0")
    sources = written.fetched
    expected = [word for source in sources for word in (source.repository, source.checkout, source.distribution)]
    assert [word for word in [*expected, *written.sealed] if word not in told] == []
    with engine.container(image, ["ls", "/"]) as container:
        assert container.wait() == 0
        assert re.findall("pwned", container.output()) == []
