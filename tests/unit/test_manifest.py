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
SECOND = ROOT / "images/rocm7.2.yaml"

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


# What images share


def shared(tmp_path: Path, *edits: tuple[str, str]) -> Path:
    """A copy of the second image, with edits in what it shares."""
    shutil.copytree(ROOT / "images", tmp_path / "images")
    path = tmp_path / "images/shared/vime.yaml"
    text = path.read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")
    return tmp_path / "images/rocm7.2.yaml"


def test_images_that_extend_the_same_have_the_same_training_half() -> None:
    first, second = manifest.load(REAL), manifest.load(SECOND)
    for name in ("megatron", "torch_memory_saver"):
        assert first.sources[name] == second.sources[name]
    assert first.sources["vime"].commit == second.sources["vime"].commit
    assert (first.build_tools, first.installer, first.constraints) == (
        second.build_tools,
        second.installer,
        second.constraints,
    )


def test_a_manifest_adds_to_an_entry_that_it_shares() -> None:
    added = manifest.load(SECOND).sources["vime"].requirements
    assert added
    assert list(added.add) == ["scipy", "flash-linear-attention"]
    assert manifest.load(SECOND).removed["PyJWT"].optional
    assert not manifest.load(REAL).removed["PyJWT"].optional


def test_a_fault_in_what_is_shared_is_shown_there(tmp_path: Path) -> None:
    path = shared(tmp_path, ("recipe: editable", "recipe: editble"))
    with pytest.raises(ManifestError) as caught:
        manifest.load(path)
    (problem,) = caught.value.problems
    assert problem.where
    assert problem.where.path == tmp_path / "images/shared/vime.yaml"
    assert problem.message.startswith("'editble' is not")


def test_what_is_extended_and_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    path = shared(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("extends: vime", "extends: vim"), encoding="utf-8")
    with pytest.raises(
        ManifestError, match=r"rocm7\.2\.yaml:\d+:1: error: no file .*\n    hint: did you mean 'vime'\?"
    ):
        manifest.load(path)


def test_what_is_extended_extends_nothing(tmp_path: Path) -> None:
    path = shared(tmp_path, ("sealed:", "extends: vime\n\nsealed:"))
    with pytest.raises(ManifestError, match=r"vime\.yaml:\d+:1: error: what is extended extends nothing"):
        manifest.load(path)


def test_a_wheel_whose_hash_nobody_knows_is_counted_with_the_command_that_finds_it() -> None:
    (unknown,) = [problem for problem in manifest.unknowns(manifest.load(SECOND)) if "prebuilt" in problem.message]
    assert unknown.message == "prebuilt.apex.sha256 is unknown"
    assert unknown.hint
    assert unknown.hint.endswith(".whl | sha256sum")
    assert manifest.load(SECOND).pins["APEX_WHEEL"].endswith(".whl")


def test_a_wheel_with_its_hash_is_one_reference(tmp_path: Path) -> None:
    path = shared(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("sha256: unknown", f"sha256: {'a' * 64}"))
    known = manifest.load(path)
    assert known.pins["APEX_WHEEL"] == f"{known.prebuilt['apex'].address}#sha256={'a' * 64}"
    assert known.prebuilt["apex"].version == "1.10.0+rocm7.2.3.git751f5dd5"


def test_a_pin_of_a_prebuilt_wheel_can_be_given_another_value() -> None:
    other = manifest.overridden(manifest.load(SECOND), {"apex.sha256": "b" * 64, "vime.commit": "1" * 40})
    assert other.prebuilt["apex"].sha256 == "b" * 64
    assert other.sources["vime"].commit == "1" * 40


def test_a_shipped_source_is_no_pin_of_the_image() -> None:
    second = manifest.load(SECOND)
    assert "VLLM_COMMIT" not in second.pins
    assert second.sources["vllm"] not in second.fetched


def test_a_tag_with_a_fork_s_mark_names_no_version() -> None:
    engine = manifest.load(SECOND).sources["transformer_engine"]
    assert (engine.tag, engine.public_version) == ("v2.15_rocm", None)
