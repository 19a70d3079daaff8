"""What is told of strangers' texts: no markup in Markdown and XML, nothing that steers in a terminal."""

from __future__ import annotations

import re
import xml.dom.minidom

import inputs
import pytest

from builder.diff import Diff, Row, Section
from builder.errors import Problem
from builder.report import Check, Report
from builder.told import plain, without_logins

HOSTILE = [
    "<img src=x onerror=id>",
    "`x`<script>",
    "a|b`<b>",
    "![x](http://y)",
    "\x1b[2J\u202eevil",
    "</details><b>",
    "]]>",
]


def report(text: str) -> Report:
    checks = tuple(
        Check(name=text, kind="x", outcome=outcome, detail=text, hint=text, seconds=0.0, notes=(text,))
        for outcome in ("passed", "failed", "could not run")
    )
    return Report(
        image="x", image_id="", tag=None, gpu_targets=("gfx942",), pins="as manifest", arguments={}, checks=checks
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_a_report_holds_no_markup_of_a_check_and_nothing_that_steers(text: str) -> None:
    found = report(text)
    plainly = re.sub(r"\\.", "", found.markdown())  # an escaped character means itself
    assert set(re.findall(r"<[^>]*>", plainly)) <= {"<br>", "<details>", "</details>", "<summary>", "</summary>"}
    assert "![" not in plainly
    assert "`" not in plainly
    inputs.told([found.table(), found.markdown()])
    xml.dom.minidom.parseString(found.junit())  # noqa: S318 (made here)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_comparison_holds_no_markup_of_what_it_compares(text: str) -> None:
    found = Diff("a", "b", (Section("env", (Row("KEY", text, None),), 0, None),))
    row = found.markdown().splitlines()[-1]
    code_or_escaped = re.sub(r"`[^`]*`|\\.", "", row)
    assert "<" not in code_or_escaped
    inputs.told([found.table()])


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://name:pass@host/x", "https://host/x"),
        ("https://token@host/x", "https://host/x"),
        ("https://name:p@ss@host", "https://host"),
        ("https://host/a@b", "https://host/a@b"),
        ("a@b.example", "a@b.example"),
        ("vime@sha256:1 https://host", "vime@sha256:1 https://host"),
    ],
)
def test_an_address_is_told_without_its_login(address: str, shown: str) -> None:
    assert without_logins(address) == shown
    assert plain(f"x {address} y") == f"x {shown} y"
    assert str(Problem(address)) == f"error: {shown}"
