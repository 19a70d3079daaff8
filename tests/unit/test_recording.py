"""What a reading makes of a file of facts: nothing is lost that holds, nothing stays that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from manifests import REAL, ROOT

from builder import facts, manifest, reading, recording
from builder.errors import BaseFactsError
from builder.facts import Facts

PATH = ROOT / "images/bases/primus-v26.4.yaml"
KNOWN = facts.load(PATH)
MANIFEST = manifest.load(REAL)
TEXT = PATH.read_text(encoding="utf-8")


def found(**other: Any) -> Facts:
    """What a container of that base might say, if all that was published is so."""
    values: dict[str, Any] = {key: getattr(KNOWN, key) for key in Facts.model_fields}
    values |= {
        "sources": {},
        "env": {**KNOWN.env, **dict.fromkeys(KNOWN.env_unknown, "read"), "PATH": "/opt/venv/bin:/usr/bin"},
        "env_unknown": (),
        "entrypoint": (),
        "tools": tuple(f"tool-{number:03}" for number in range(60)),
        "pip_check": ("mamba-ssm 2.3.1 requires tilelang, which is not installed.",),
        "distributions": {**KNOWN.distributions, "pyjwt": "2.7.0"},
        "flavours": {"torch": "rocm"},
        "requirements": {"torch": ("filelock", "triton==3.7.0+gitb4e20bbe.rocm7.14.0a20260608")},
    }
    return Facts(**values | other)


def distributions(**other: str | None) -> dict[str, str]:
    changed = {**found().distributions, **{name.replace("_", "-"): version for name, version in other.items()}}
    return {name: version for name, version in changed.items() if version}


def recorded(read: Facts, old: str = TEXT, known: Facts | None = KNOWN) -> str:
    wrong = [each.key for each in reading.differences(known, read)] if known else []
    merged = recording.merged(known, read, wrong)
    return recording.text("primus-v26.4", merged, known, old)


def loaded(folder: Path, text: str) -> Facts:
    path = folder / "primus-v26.4.yaml"
    path.write_text(text, encoding="utf-8")
    return facts.load(path)


def test_what_was_published_and_holds_stays_with_its_comments_and_its_source(tmp_path: Path) -> None:
    text = recorded(found())
    after = loaded(tmp_path, text)
    assert dict(after.sources) == {
        **KNOWN.sources,
        **dict.fromkeys(["entrypoint", "pip_check", "tools"], "the image itself"),
    }
    assert after.env["CPATH"] == "read"
    assert after.env_unknown == ()
    assert after.tools == found().tools
    assert after.distributions == found().distributions
    lines = text.splitlines()
    assert lines[1].startswith("# Facts of rocm/primus:v26.4, read from it by `python -m builder facts primus-v26.4`")
    kept = [line for line in TEXT.splitlines() if line.strip() and not line.startswith(("#", "  - "))]
    assert [line for line in kept if line not in lines] == ["env_unknown:"]
    assert max(map(len, lines)) <= 220


def test_a_second_reading_of_the_same_changes_no_byte(tmp_path: Path) -> None:
    once = recorded(found())
    assert recorded(found(), once, loaded(tmp_path, once)) == once


def test_comments_between_entries_stay_with_what_they_are_about(tmp_path: Path) -> None:
    old = TEXT.replace("  torch: 2.12", "  # the ROCm build\n  torch: 2.12").replace("  apex: ", "  # ours\n  apex: ")
    known = loaded(tmp_path, old)
    text = recorded(found(distributions=distributions(apex="2.0")), old, known)
    assert "  # the ROCm build\n  torch: 2.12.0+rocm7.14.0a20260608\n" in text
    assert "  apex: 2.0\n" in text or '  apex: "2.0"\n' in text
    assert "# ours" not in text


def test_a_kind_that_was_published_wrongly_cites_the_image(tmp_path: Path) -> None:
    after = loaded(tmp_path, recorded(found(distributions=distributions(apex="2.0", torchao=None))))
    assert after.distributions["apex"] == "2.0"
    assert "torchao" not in after.distributions
    assert after.sources["distributions"] == "the image itself"
    assert after.sources["env"] == KNOWN.sources["env"]


def test_what_the_image_does_not_tell_stays_as_published(tmp_path: Path) -> None:
    text = recorded(found(device_code=None, rocm_root=None, digest="unknown", flavours=None, requirements=None))
    after = loaded(tmp_path, text)
    assert (after.device_code, after.rocm_root, after.digest) == (KNOWN.device_code, KNOWN.rocm_root, KNOWN.digest)
    assert after.requirements is None


@pytest.mark.parametrize("other", [{"image": "rocm/primus:v26.5"}, {"digest": f"sha256:{'a' * 64}"}])
def test_nothing_is_carried_over_from_another_image(tmp_path: Path, other: dict[str, str]) -> None:
    read = found(**{"digest": "unknown", "device_code": None, "size_gb": 80.1, **other})
    after = loaded(tmp_path, recorded(read))
    assert (after.image, after.digest) == (read.image, read.digest)
    assert (after.device_code, after.size_gb) == (None, 80.1)
    assert set(after.sources.values()) == {"the image itself"}


def test_a_base_that_nobody_has_published_gets_a_file_of_its_own(tmp_path: Path) -> None:
    text = recorded(found(), "", None)
    after = loaded(tmp_path, text)
    assert set(after.sources.values()) == {"the image itself"}
    assert after.distributions == found().distributions
    assert recorded(found(), text, after) == text


def test_what_changes_is_shown_as_a_diff() -> None:
    lines = recording.difference("x.yaml", TEXT, recorded(found()))
    assert lines[:2] == ["--- x.yaml", "+++ x.yaml"]
    assert "+  pyjwt: 2.7.0" in lines
    assert recording.difference("x.yaml", TEXT, TEXT) == []
    assert recording.difference("x.yaml", "", TEXT)[0] == "--- /dev/null"


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1) | st.text("0123abnoy:. '\"~-", min_size=1))
def test_a_scalar_is_read_back_as_the_text_that_it_was(text: str) -> None:
    assert yaml.safe_load(f"key: {recording.scalar(text)}") == {"key": text}
    assert yaml.safe_load(f"- {recording.scalar(text)}") == [text]


# Surprises


def surprise(read: Facts, known: Facts = KNOWN) -> str:
    with pytest.raises(BaseFactsError) as caught:
        reading.assert_expected(MANIFEST, known, reading.Reading(read, ()))
    return str(caught.value)


def test_a_base_that_is_as_published_and_has_more_is_no_surprise() -> None:
    reading.assert_expected(MANIFEST, KNOWN, reading.Reading(found(), ()))


def test_each_fact_that_is_another_is_told_at_its_place_with_the_line_to_write() -> None:
    said = surprise(found(distributions=distributions(torch="2.13.0", apex=None), system="ubuntu 26.04"))
    line = KNOWN.where("distributions", "torch").line
    assert (
        f"{PATH}:{line}:3: error: distributions.torch is 2.13.0 in the base; its facts say "
        "2.12.0+rocm7.14.0a20260608\n    hint: write it as torch: 2.13.0" in said
    )
    assert "the base has no distributions.apex; its facts say 1.11.0" in said
    assert "hint: write it as system: ubuntu 26.04" in said
    assert "3 facts of rocm/primus:v26.4@sha256:8c8e" in said
    assert "python -m builder facts primus-v26.4" in said


def test_a_variable_that_the_base_no_longer_sets_is_a_surprise() -> None:
    env = {name: value for name, value in found().env.items() if name not in {"CPATH", "MAX_JOBS"}}
    said = surprise(found(env=env))
    assert "the base does not set CPATH\n    hint: take that out of env_unknown" in said
    assert 'the base has no env.MAX_JOBS; its facts say "128"' in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ROCR_VISIBLE_DEVICES", "the base sets 'ROCR_VISIBLE_DEVICES', which the manifest forbids"),
        ("NVTE_UNFUSED_ATTN", "the base sets 'NVTE_UNFUSED_ATTN' to '1', which changes the Dockerfile"),
        ("VLLM_COMMIT", "the base sets 'VLLM_COMMIT' to '1', which changes the Dockerfile"),
    ],
)
def test_a_variable_that_nobody_has_published_is_a_surprise_where_it_matters(name: str, message: str) -> None:
    said = surprise(found(env={**found().env, name: "1"}))
    assert message in said
    assert said.count("error: ") == 2


def test_what_only_one_of_the_two_tells_is_no_surprise() -> None:
    read = found(device_code=None, digest="unknown", tools=None)
    reading.assert_expected(MANIFEST, KNOWN, reading.Reading(read, ()))
    assert not list(reading.differences(KNOWN, read))
