"""Two images compared, an image and a manifest, and what of them nobody knows; on small images with our files."""

from __future__ import annotations

import json
from collections.abc import Iterator

import hollow
import pytest
import pythonic
from click.testing import CliRunner
from conftest import MANIFEST

from builder import cli, side
from builder.diff import Diff, Row, Section, diff
from builder.engine import Engine
from builder.errors import UsageError

COMMIT = "1" * 40


def section(found: Diff, name: str) -> Section:
    return next(each for each in found.sections if each.name == name)


@pytest.fixture(scope="module")
def pair(engine: Engine) -> Iterator[tuple[str, str]]:
    """An image of the manifest, and one with another commit, another variable and another result."""
    other = hollow.edited(
        (MANIFEST.sources["vime"].commit, COMMIT),
        ('CUDA_DEVICE_MAX_CONNECTIONS:\n    value: "1"', 'CUDA_DEVICE_MAX_CONNECTIONS:\n    value: "8"'),
    )
    files = hollow.written(other)
    files = {path: content.replace('"could not run"', '"passed"') for path, content in files.items()}
    tags = hollow.image(engine), hollow.image(engine, other, files=files)
    yield tags
    for tag in tags:
        engine.remove_image(tag)


@pytest.fixture(scope="module")
def found(engine: Engine, pair: tuple[str, str]) -> Diff:
    a, b = (side.of(tag, lambda: engine) for tag in pair)
    return diff(a, b)


def test_pins_variables_and_checks_that_differ_are_told_with_both_values(found: Diff) -> None:
    pins = {row.key: row for row in section(found, "pins").rows}
    assert pins["vime.commit"] == Row("vime.commit", MANIFEST.sources["vime"].commit, COMMIT)
    assert set(pins) == {"vime.commit", "base.image"}, "each has a hollow base of its own"
    assert section(found, "env").rows == (Row("CUDA_DEVICE_MAX_CONNECTIONS", "1", "8"),)
    assert section(found, "checks").rows == (Row("vime imports", "could not run", "passed"),)
    assert section(found, "checks").same == 2


def test_layers_are_told_by_their_instruction_with_their_bytes(
    found: Diff, pair: tuple[str, str], engine: Engine
) -> None:
    roots = [engine.history(tag)[0].size for tag in pair]
    assert section(found, "layers").rows == (Row("(the root of its base)", *roots),)
    assert section(found, "layers").same > 10, "the files of the image"


def test_distributions_of_an_image_that_does_not_tell_them_are_unknown_and_not_equal(
    found: Diff, pair: tuple[str, str]
) -> None:
    told = section(found, "distributions")
    assert (told.rows, told.same) == ((), 0)
    assert told.unknown == f"{pair[0]} cannot be read: exit code 0"
    assert "distributions: unknown, " in found.table()


def test_distributions_of_two_images_are_asked_of_their_pythons(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    installed = {**pythonic.INSTALLED, "numpy": "2.0.0", "more": "1.0"}
    del installed["stranger"]
    tags = [
        pythonic.image(engine, tmp_path_factory.mktemp("context"), each) for each in (pythonic.INSTALLED, installed)
    ]
    try:
        a, b = (side.of(tag, lambda: engine) for tag in tags)
        told = section(diff(a, b), "distributions")
        assert told.rows == (Row("more", None, "1.0"), Row("numpy", "1.26.4", "2.0.0"), Row("stranger", "1.0", None))
        assert told.same == len(pythonic.INSTALLED) - 2 + 1, "and pip"
    finally:
        for tag in tags:
            engine.remove_image(tag)


def test_an_image_against_its_manifest_leaves_out_what_a_manifest_cannot_tell(
    engine: Engine, pair: tuple[str, str]
) -> None:
    found = diff(side.of(pair[1], lambda: engine), side.of(MANIFEST.name, lambda: engine))
    assert {row.key for row in section(found, "pins").rows} == {"vime.commit", "base.image", "base.digest"}
    assert section(found, "env").rows == (Row("CUDA_DEVICE_MAX_CONNECTIONS", "8", "1"),)
    for name in ("layers", "checks"):
        assert section(found, name).unknown == f"{MANIFEST.name} is a manifest, and was not built"


def test_the_command_prints_every_format(
    engine: Engine, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.address)

    def printed(*words: str) -> str:
        done = CliRunner().invoke(cli.main, ["diff", *pair, *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert f"a = {pair[0]}\nb = {pair[1]}\n" in printed()
    assert json.loads(printed("--format", "json"))["sections"][0]["name"] == "pins"
    assert "| `CUDA_DEVICE_MAX_CONNECTIONS` | `1` | `8` |" in printed("--format", "markdown")


def test_an_image_that_is_none_of_ours_is_refused(engine: Engine, tiny: str) -> None:
    with pytest.raises(UsageError, match="is none of our images"):
        side.of(tiny, lambda: engine)
