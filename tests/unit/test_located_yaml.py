from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder import located_yaml
from builder.document import Document
from builder.errors import Location, ManifestError, Problem

X = Path("images/x.yaml")
WEIRD = "\t\n\r -:?,[]{}#&*!|>'\"%@`\\~<=0x1UuN\x00\x07\x85\u00a0\u2028\u202e\ufeff\U0001f600"

bounded = settings(max_examples=300, deadline=None, derandomize=True)


def parse(text: str) -> Document:
    return located_yaml.parse(text.encode(), X)


def refused(content: str | bytes) -> Problem:
    with pytest.raises(ManifestError) as caught:
        located_yaml.parse(content if isinstance(content, bytes) else content.encode(), X)
    return caught.value.problems[-1]


@pytest.mark.parametrize(
    "scalar",
    [
        *("7.10", "7.14", "1e5", "61e9540", "1.5e+3", "0123456", "0x1234567", "1_234_567", "010", "08"),
        *("on", "no", "NO", "yes", "y", "True", "2026-09-10", "12:34:56", "22:22", ".inf", "=", "0o7"),
        "1234567890123456789012345678901234567890",
        "0123456701234567012345670123456701234567",
    ],
)
def test_a_scalar_is_the_text_that_stands_there(scalar: str) -> None:
    assert parse(f"a: {scalar}\n{scalar}: b\n").value == {"a": scalar, scalar: "b"}
    assert parse(f"a: '{scalar}'\n").value == {"a": scalar}


@pytest.mark.parametrize("nothing", ["", "~", "null", "Null", "NULL", "# a comment"])
def test_nothing_is_a_missing_value(nothing: str) -> None:
    document = parse(f"a: {nothing}\nb: [1, {nothing.partition('#')[0] or '~'}]\n")
    assert [problem.message for problem in document.problems] == ["missing value", "missing value"]
    assert document.value == {"a": None, "b": ("1", None)}


@pytest.mark.parametrize("text", ["a: ''\n", 'a: ""\n', "a: |\n"])
def test_an_empty_text_is_a_value(text: str) -> None:
    assert parse(text).problems == ()


def test_a_quoted_null_is_a_text() -> None:
    assert parse("a: 'null'\nb: \"~\"\n").value == {"a": "null", "b": "~"}


def test_a_comment_behind_a_value_is_a_comment() -> None:
    assert parse("a: echo #hi\nb: echo#hi\n").value == {"a": "echo", "b": "echo#hi"}


def test_keys_and_values_know_their_places() -> None:
    document = parse("a:\n  b: [one, two]\n  'c d': |\n    text\n")
    assert document.where("a", "b") == Location(X, 2, 3)
    assert document.where_value("a", "b") == Location(X, 2, 6)
    assert document.where("a", "b", 1) == Location(X, 2, 12)
    assert document.where("a", "c d") == Location(X, 3, 3)
    assert document.where_value("a", "c d") == Location(X, 3, 10)
    assert document.where("a", "nothing", "there") == Location(X, 1, 1)
    assert document.where("nothing") == Location(X, 1, 1)


@pytest.mark.parametrize("directive", ["%YAML 1.1", "%TAG ! tag:example.org,2000:"])
def test_a_directive_is_refused_and_a_document_mark_is_not(directive: str) -> None:
    document = parse(f"{directive}\n---\na: 1\n")
    assert [problem.message for problem in document.problems] == ["a directive is not allowed"]
    assert parse("---\na: 1\n...\n").problems == ()


@pytest.mark.parametrize("written", ["old", "'old'", '"old"'])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_one_value_can_be_exchanged_and_nothing_else(written: str, end: str) -> None:
    text = f"# é 😀{end}a:{end}  b: {written}   # why{end}  c: old{end}"
    document = parse(text)
    assert document.scalar("a", "b") == written
    assert document.rewritten({("a", "b"): "new"}) == {X: text.replace(written, "new", 1)}


def test_windows_line_ends_are_read_as_others_are() -> None:
    text = "a:\n  b: |\n    one\n    two\nc: 1\n"
    windows = parse(text.replace("\n", "\r\n"))
    assert windows.value == parse(text).value
    assert windows.where("c") == Location(X, 5, 1)


def test_a_key_written_twice_names_both_lines() -> None:
    document = parse("a: 1\nb: 2\na: {c: 1, c: 2}\n")
    assert list(map(str, document.problems)) == [
        "images/x.yaml:3:1: error: key 'a' stands in line 1 already\n    hint: keep one of the two"
    ]
    assert document.value == {"a": "1", "b": "2"}


def test_faults_that_hide_nothing_are_told_together() -> None:
    document = parse("a: &x 1\nb: *x\n<<: {c: 1}\nd: !!int 7\ne:\n? [f]\n: 1\n~: g\n")
    assert [f"{problem.where} {problem.message}" for problem in document.problems] == [
        "images/x.yaml:1:4 anchor '&x' is not allowed",
        "images/x.yaml:2:4 alias '*x' is not allowed",
        "images/x.yaml:3:1 merge key '<<' is not allowed",
        "images/x.yaml:4:4 tag 'tag:yaml.org,2002:int' is not allowed",
        "images/x.yaml:5:1 missing value",
        "images/x.yaml:6:3 a key is a text, found a list",
        "images/x.yaml:8:1 missing key",
    ]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("", "1:1 file is empty"),
        ("# only a comment\n", "1:1 file is empty"),
        ("- a\n", "1:1 wants keys at the top, found a list"),
        ("a\n", "1:1 wants keys at the top, found a text"),
        ("a: 1\n---\nb: 2\n", "2:1 a second document begins"),
        ("a:\n\tb: 1\n", "2:1 a tab cannot indent"),
        ("a: b: c\n", "1:5 mapping values are not allowed here"),
        ("a: 1\nb\n", "3:1 could not find expected ':' (while scanning a simple key from line 2)"),
        ("a: 'b\n", "2:1 found unexpected end of stream (while scanning a quoted scalar from line 1)"),
        ("a: b\0c\n", "1:5 character U+0000 is not allowed"),
        ("a: 1\nb: \u202ec\n", "2:4 character U+202E is not allowed"),
        ("\ufeffa: 1\n", "1:1 character U+FEFF is not allowed"),
        ("a: b\rc: d\n", "1:5 character U+000D is not allowed"),
        (b"a: 1\nb: \xe4\n", "2:4 byte 0xe4 is not UTF-8"),
        ("a: 1\n".encode("utf-16"), "1:1 byte 0xff is not UTF-8"),
        ('a: "\\UFFFFFFFF"\n', "1:7 not YAML: the number in an escape or a directive is too large"),
        (b"a: 1\n" * 60_000, "1:1 file is larger than 256,000 bytes"),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_line(content: str | bytes, wanted: str) -> None:
    problem = refused(content)
    assert problem.where
    assert f"{problem.where.line}:{problem.where.column} {problem.message}" == wanted


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 10_000,
        "a: " + "[\n" * 10_000,
        "a: " + "{b: " * 10_000,
        "a:\n" + "".join(" " * depth + "-\n" for depth in range(600)),
        "- " * 10_000,
        "? " * 10_000,
        "a: 1\na: " + "[" * 10_000 + "]" * 10_000,
    ],
    ids=["brackets", "lines", "braces", "dashes", "one line of dashes", "questions", "under a second key"],
)
def test_depth_is_refused_before_it_hurts(text: str) -> None:
    began = time.monotonic()
    try:
        problems = parse(text).problems
    except ManifestError as error:
        problems = error.problems
    assert problems
    assert time.monotonic() - began < 10


def test_nested_aliases_are_never_followed() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    assert len(parse(bomb).problems) == 60 + 2 * 59
    assert parse("a: &a [*a]\n").value == {"a": (None,)}


def test_a_value_longer_than_any_is_refused() -> None:
    document = parse("a: " + "x" * 5000 + "\n")
    assert [problem.message for problem in document.problems] == ["value has 5,000 characters"]


def test_an_escape_is_judged_by_what_it_means() -> None:
    document = parse('a: "\\0"\nb: "\\u202e"\nc: "\\u00e9"\n"\\a": d\n')
    assert document.value == {"a": None, "b": None, "c": "é"}
    assert [problem.message for problem in document.problems] == [
        "character U+0000 is not allowed",
        "character U+202E is not allowed",
        "key '\\x07' is not printable",
    ]


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no file"):
        located_yaml.load(tmp_path / "x.yaml")


def check(content: bytes) -> None:
    """Any content is a document or a refusal; anything else fails the test."""
    try:
        document = located_yaml.parse(content, X)
    except ManifestError as error:
        assert all(problem.where for problem in error.problems)  # noqa: PT017 (either way is right)
    else:
        assert isinstance(document.value, dict)
        for place in document.places.values():
            assert 0 <= place.start <= place.end <= len(document.texts[X])


@bounded
@given(st.binary(max_size=60))
def test_no_bytes_make_a_traceback(content: bytes) -> None:
    check(content)


@bounded
@given(st.text(st.sampled_from(WEIRD) | st.sampled_from("ab"), max_size=60))
def test_no_text_makes_a_traceback(text: str) -> None:
    check(text.encode())
    check(f"a: {text}\n".encode())
