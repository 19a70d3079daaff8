from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builder import manifest
from builder.errors import ManifestError, Problem
from builder.manifest import Manifest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOOD = [*sorted((HERE.parent / "manifests/good").glob("*.yaml")), *sorted((ROOT / "images").glob("*.yaml"))]
BAD = sorted((HERE.parent / "manifests/bad").glob("*.yaml"))
SMALL = HERE.parent / "manifests/good/small.yaml"
SPELLING = HERE.parent / "manifests/good/spelling.yaml"
REAL = ROOT / "images/rocm7.14.yaml"

bounded = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def faults(text: str, name: str = "x.yaml") -> tuple[Problem, ...]:
    with pytest.raises(ManifestError) as caught:
        manifest.parse(text.encode(), Path(name))
    return caught.value.problems


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_manifest_loads(path: Path) -> None:
    assert manifest.load(path).name == path.stem


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_manifest_says_what_its_comments_say(path: Path) -> None:
    """Each file under bad/ states its own errors: `# want: line:column message`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    wanted = [line.removeprefix("# want: ") for line in lines if line.startswith("# want: ")]
    with pytest.raises(ManifestError) as caught:
        manifest.load(path)
    found = [f"{p.where.line}:{p.where.column} {p.message}" for p in caught.value.problems if p.where]
    assert found == wanted
    assert len(found) == len(caught.value.problems), "a fault has no place"


def test_every_bad_manifest_wants_something() -> None:
    assert BAD
    assert [path.name for path in BAD if "# want: " not in path.read_text(encoding="utf-8")] == []


def test_a_message_is_one_to_paste_and_to_click(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    text = SMALL.read_text(encoding="utf-8").replace("recipe: wheel", "recipe: weel")
    Path("images/x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        manifest.load(Path("images/x.yaml"))
    wanted = (
        "images/x.yaml:17:13: error: 'weel' is not 'wheel', 'editable' or 'shipped'\n    hint: did you mean 'wheel'?"
    )
    assert str(caught.value) == wanted


def test_texts_stay_as_they_stand() -> None:
    spelt = manifest.load(SPELLING)
    assert spelt.summary == "7.10"
    assert spelt.overrides["amd-quark"].version == "0.10"
    assert spelt.sources["vllm"].commit == "0123456701234567012345670123456701234567"
    assert spelt.sources["megatron"].commit == "6831260000000000000000000000000000000e10"
    assert {name: variable.value for name, variable in spelt.env.items()} == {
        "A_FLOAT": "1.0",
        "A_NUMBER": "08",
        "EMPTY": "",
        "QUOTES": 'it\'s "$HOME" \\ # %',
        "SWITCH": "on",
    }
    assert [chosen.reason for chosen in spelt.sealed.values()] == ["2026-09-10", "0x10", "12:34:56"]
    assert [chosen.optional for chosen in spelt.sealed.values()] == [False, True, False]


def test_windows_line_ends_change_nothing() -> None:
    text = SPELLING.read_text(encoding="utf-8")
    unix = manifest.parse(text.encode(), SPELLING)
    assert manifest.parse(text.replace("\n", "\r\n").encode(), SPELLING) == unix


def test_what_can_be_derived_is_derived() -> None:
    real = manifest.load(REAL)
    assert real.base.reference == f"{real.base.image}@{real.base.digest}"
    assert list(real.sources) == [source.name for source in real.sources.values()]
    saver = real.sources["torch_memory_saver"]
    assert (saver.checkout, saver.commit_argument) == ("/opt/torch_memory_saver", "TORCH_MEMORY_SAVER_COMMIT")
    assert real.sources["megatron"].checkout == "/opt/Megatron-LM"
    assert saver.public_version is None
    assert f"v{real.sources['vllm'].public_version}" == real.sources["vllm"].tag


def test_a_place_is_that_of_the_key() -> None:
    real = manifest.load(REAL)
    lines = REAL.read_text(encoding="utf-8").splitlines()
    where = real.where("sources", "vllm", "commit")
    assert where.path == REAL
    assert lines[where.line - 1][where.column - 1 :].startswith(f"commit: {real.sources['vllm'].commit}")
    assert real.where("sources", "vllm", "patches", 0) == real.where("sources", "vllm")
    item = real.where("gpu_targets", 1)
    assert lines[item.line - 1][item.column - 1 :].startswith(real.gpu_targets[1])


def test_manifests_are_compared_by_what_they_say(tmp_path: Path) -> None:
    moved = tmp_path / "small.yaml"
    moved.write_text("\n\n# another comment\n" + SMALL.read_text(encoding="utf-8"), encoding="utf-8")
    assert manifest.load(moved) == manifest.load(SMALL)
    assert manifest.load(moved).where("base") != manifest.load(SMALL).where("base")
    shutil.copy(moved, tmp_path / "other.yaml")
    assert manifest.load(tmp_path / "other.yaml") != manifest.load(SMALL)


def test_nothing_can_be_changed_later() -> None:
    small = manifest.load(SMALL)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        small.base.digest = "unknown"


def test_the_unknown_is_counted_and_named() -> None:
    asked = manifest.load(HERE.parent / "manifests/good/unknown.yaml")
    assert [problem.message for problem in manifest.unknowns(asked)] == [
        "base.digest is unknown",
        "sources.vllm.commit is unknown",
    ]
    assert [problem.where for problem in manifest.unknowns(asked)] == [
        asked.where("base", "digest"),
        asked.where("sources", "vllm", "commit"),
    ]
    assert asked.base.reference == asked.base.image
    assert manifest.unknowns(manifest.load(REAL)) == ()


def test_no_hint_repeats_a_secret() -> None:
    text = SMALL.read_text(encoding="utf-8").replace("https://", "https://me:secret@")
    assert "secret" not in "\n".join(map(str, faults(text)))


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no file"):
        manifest.load(tmp_path / "x.yaml")
    with pytest.raises(ManifestError, match="no file"):
        manifest.load(tmp_path)


def test_loading_needs_no_engine_no_colours_no_network() -> None:
    code = "import sys, builder.facts; print({'docker', 'rich', 'git', 'requests'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_editors_can_have_a_schema() -> None:
    assert set(Manifest.model_json_schema()["properties"]) == set(Manifest.model_fields)


@bounded
@given(st.data())
def test_any_edit_of_a_manifest_loads_or_is_refused_with_a_place(data: st.DataObject) -> None:
    lines = SPELLING.read_text(encoding="utf-8").splitlines()
    index = data.draw(st.integers(0, len(lines) - 1))
    piece = st.sampled_from([*lines, "", "- a", "a: b", "a: [b]", "null", "  <<: *x", "&x y", "? [a]", "a: {b: }"])
    lines[index : index + data.draw(st.integers(0, 3))] = data.draw(st.lists(piece, max_size=3))
    try:
        manifest.parse("\n".join(lines).encode(), SPELLING)
    except ManifestError as error:
        assert all(problem.where for problem in error.problems)  # noqa: PT017 (either way is right)


@bounded
@given(st.data())
def test_any_value_in_any_place_loads_or_is_refused_with_a_place(data: st.DataObject) -> None:
    lines = SMALL.read_text(encoding="utf-8").splitlines()
    places = [index for index, line in enumerate(lines) if ": " in line and not line.startswith("#")]
    index = data.draw(st.sampled_from(places))
    key = lines[index].partition(": ")[0]
    lines[index] = f"{key}: {data.draw(st.text(st.characters(codec='utf-8'), max_size=40))}"
    try:
        manifest.parse("\n".join(lines).encode(), SMALL)
    except ManifestError as error:
        assert all(problem.where for problem in error.problems)  # noqa: PT017 (either way is right)
