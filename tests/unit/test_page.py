"""The HTML report, as a browser shows it and as its values reach it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder import page
from builder.diff import diff
from builder.errors import BuildFailedError, Problem
from builder.report import Check, Outcome, Report, Step, ended_by
from builder.side import Side
from builder.trace import Event

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
HOSTILE = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"
LONG = "x" * 300


def check(name: str, outcome: Outcome, detail: str = "", hint: str = "") -> Check:
    return Check(name=name, kind="command", outcome=outcome, detail=detail, hint=hint, seconds=0.1, notes=(HOSTILE,))


REPORT = Report(
    image="demo",
    image_id="sha256:" + "a" * 64,
    tag=None,
    gpu_targets=("gfx942",),
    pins="overridden",
    arguments={"BASE_IMAGE": LONG},
    checks=(
        check("fine", "passed", HOSTILE),
        check("untried", "could not run", "no GPU"),
        check("broken" + HOSTILE, "failed", LONG, "change " + HOSTILE),
    ),
    steps=(
        Step(name="SEAL", cached=True, seconds=0.0),
        Step(name="BUILD_VLLM", cached=False, seconds=30.0, began=0.0),
        Step(name=f"COPY {LONG}", cached=False, seconds=10.0, began=30.0, clipped=True),
    ),
    seconds=50.0,
)
SIDE = Side(
    title="now",
    pins={"vllm.repository": "https://github.com/vllm-project/vllm.git", "vllm.commit": "b" * 40, "x.commit": HOSTILE},
    env={"PATH": LONG},
    distributions={"torch": "2.12.0+rocm7.14", "numpy": "1.26.4", LONG: "1"},
    layers={f"RUN {at} {HOSTILE}": 10 ** (at % 12) for at in range(20)},
    checks={},
    unknown={},
    flavours={"torch": "rocm7.14"},
    sealed={"torch": "base"},
)
CHANGED = diff(replace(SIDE, title="2026-01-01", pins={"vllm.commit": "c" * 40}, env={}), SIDE)
LOGS = {"BUILD_VLLM": page.Log(text=f"{HOSTILE}\n{LONG}\n" * 60, left_out=7, earlier=False)}
PAGE = page.html(REPORT, SIDE, CHANGED, "2026-01-02", LOGS)


def empty(**values: str) -> Side:
    return Side(title="", pins={}, env={}, distributions=None, layers=None, checks=None, unknown=values, sealed=None)


def test_no_value_is_markup_and_nothing_is_loaded() -> None:
    assert "<script" not in PAGE
    assert "{{ 7 * 7 }}" in PAGE
    assert "&lt;script&gt;" in PAGE
    assert "default-src &#39;none&#39;" in PAGE or "default-src 'none'" in PAGE


def test_failures_stand_first_and_each_says_what_to_do() -> None:
    failed, untried, passed = (
        PAGE.index(f"</span> {outcome}</span>") for outcome in ("failed", "could not run", "passed")
    )
    assert failed < untried < passed
    assert "unknown: this check gives no advice" in PAGE[untried:passed]


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (("passed",), ">Passed<"),
        (("passed", "could not run"), ">Passed, but 1 could not run<"),
        (("could not run",), ">Not proved: no check could run<"),
        ((), ">Not proved: no check could run<"),
        (("passed", "failed"), ">Failed: the image has no tag from this<"),
    ],
)
def test_what_could_not_run_is_never_told_as_passed(outcomes: tuple[Outcome, ...], said: str) -> None:
    one = replace(REPORT, checks=tuple(check(str(at), outcome) for at, outcome in enumerate(outcomes)))
    assert said in page.html(one, SIDE, None, "now", {})


def test_what_nobody_knows_is_unknown_with_its_reason() -> None:
    unknown = empty(distributions="it has no python", layers="no layers", pins="no pins")
    text = page.html(replace(REPORT, steps=(), arguments={}), unknown, None, "now", {})
    for reason in ("it has no python", "no layers", "no pins", "no record of the build", "no earlier report"):
        assert f"<b>unknown</b>: {reason}" in text or reason in text
    assert text.count("<b>unknown</b>") == 5


def test_a_seal_that_cannot_be_read_is_not_shown_as_nothing_sealed() -> None:
    text = page.html(REPORT, replace(SIDE, sealed=None), None, "now", {})
    assert "unknown how many sealed" in text


def test_a_pin_is_linked_only_where_its_page_is_known() -> None:
    pins = SIDE.pins
    assert (
        page.link("vllm.commit", "b" * 40, pins, "as manifest")
        == f"https://github.com/vllm-project/vllm/commit/{'b' * 40}"
    )
    assert page.link("vllm.tag", "v1", pins, "as manifest") == "https://github.com/vllm-project/vllm/releases/tag/v1"
    assert page.link("vllm.commit", "b" * 40, pins, "overridden") is None, "a stand-in's commit is on no page"
    assert page.link("x.commit", HOSTILE, pins, "as manifest") is None
    assert page.link("y.repository", "javascript:alert(1)", pins, "as manifest") is None
    assert page.link("base.digest", "sha256:1", pins, "as manifest") is None


def test_a_cached_step_has_no_bar_and_the_others_stand_where_they_ran() -> None:
    found = [(round(bar.left), round(bar.width)) for bar in page.bars(REPORT, {})]
    assert found == [(0, 0), (0, 75), (75, 25)]


def test_logs_are_kept_by_step_and_still_told() -> None:
    told: list[Event] = []
    logs = page.Logs(told.append)
    events = [Event("A", "started", "started"), Event("A", "one", "line"), Event("A", "two", "line")]
    for event in events:
        logs(event)
    assert (logs.lines, told) == ({"A": ["one", "two"]}, events)


def test_a_page_names_what_the_earlier_one_said_otherwise(tmp_path: Path) -> None:
    first = page.write(tmp_path, "vime:demo", REPORT, SIDE, {"BUILD_VLLM": ["compiled"]})
    assert "there is no earlier report" in first.read_text()
    cached = replace(REPORT, steps=(Step(name="BUILD_VLLM", cached=True, seconds=0.0),))
    text = page.write(tmp_path, "vime:demo", cached, replace(SIDE, distributions={"torch": "2.13.0"}), {}).read_text()
    assert "2.13.0" in text
    assert "2.12.0+rocm7.14" in text
    assert "whether with the same inputs is unknown" in text
    assert ">compiled</pre>" in text


FAILED_BUILD = replace(
    REPORT,
    image_id="",
    checks=(ended_by(BuildFailedError(Problem("step BUILD_VLLM failed", hint="debug it")), "the image is built", "build", 9),),
    steps=(Step(name="SEAL", cached=True, seconds=0.0), Step(name="BUILD_VLLM", cached=False, seconds=9.0, began=0.0, failed=True)),
)  # fmt: skip


def test_the_page_of_a_failed_build_opens_at_the_log_of_its_step_and_hides_no_earlier_image(tmp_path: Path) -> None:
    page.write(tmp_path, "vime:demo", REPORT, SIDE, {})
    path = page.write(
        tmp_path, "vime:demo", FAILED_BUILD, empty(pins="no image was built"), {"BUILD_VLLM": ["error: x"]}
    )
    text = path.read_text()
    assert ">Build failed<" in text
    assert "<b>What to do</b> debug it" in text
    opened = text[text.index('<details class="step failed" open>') :]
    assert ">BUILD_VLLM<" in opened.partition("</summary>")[0]
    assert ">error: x</pre>" in opened.partition("</details>")[0]
    assert "no image was built that could be compared" in text
    assert "against the report of" in page.write(tmp_path, "vime:demo", REPORT, SIDE, {}).read_text()


@pytest.mark.parametrize("kept", ["", "{", "[]", '{"side": 1}', '{"side": {"title": 1}}'])
def test_an_earlier_page_that_cannot_be_read_is_none(tmp_path: Path, kept: str) -> None:
    (tmp_path / "build" / "demo").mkdir(parents=True)
    (tmp_path / "build" / "demo" / "contents.json").write_text(kept)
    assert "there is no earlier report" in page.write(tmp_path, "vime:demo", REPORT, SIDE, {}).read_text()


def test_an_image_by_any_name_has_a_folder_of_its_own_under_build(tmp_path: Path) -> None:
    names = ("vime:demo", "registry.example:5000/team/vime:demo-2", "vime", "sha256:" + "a" * 64)
    found = [page.write(tmp_path, name, REPORT, SIDE, {}).relative_to(tmp_path).parts for name in names]
    assert found == [("build", name, "report.html") for name in ("demo", "demo-2", "latest", "a" * 64)]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_all_of_it_cuts_nothing_and_complains_of_nothing(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    path = tmp_path / "report.html"
    path.write_text(PAGE)
    shown = browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.on("request", lambda request: said.extend([request.url] * request.url.startswith("http")))
    shown.goto(path.as_uri())
    assert shown.evaluate("document.title") == "demo for gfx942: Failed: the image has no tag from this"
    assert_folds(shown)
    screenshots = ROOT / "build" / "screenshots"
    screenshots.mkdir(parents=True, exist_ok=True)
    for scheme, media in (("light", "screen"), ("dark", "screen"), ("light", "print")):
        shown.emulate_media(color_scheme=scheme, media=media)  # type: ignore[arg-type]
        assert (shown.evaluate(CUT), shown.evaluate(FAINT)) == ([], [])
        room = shown.get_by_text("BUILD_VLLM", exact=True).bounding_box()
        assert room is not None
        assert room["height"] < 30, "its name stands on one line"
        shown.screenshot(path=screenshots / f"report-{width}-{media}-{scheme}.png", full_page=True)
    assert said == []
    shown.close()


def test_paper_shows_what_was_folded_away_but_for_the_logs(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(PAGE)
    shown = browser.new_page()
    shown.goto(path.as_uri())
    folded, log = shown.get_by_text("numpy", exact=True), shown.get_by_label("log of BUILD_VLLM")
    assert not folded.evaluate(VISIBLE)
    shown.emulate_media(media="print")
    assert folded.evaluate(VISIBLE)
    assert not log.evaluate(VISIBLE)
    shown.close()


def assert_folds(shown: Page) -> None:
    """Each fold opens by the keyboard, shows what is in it, and closes again; all are open in the end."""
    folds = shown.locator("details")
    assert folds.count() == 7
    for at in range(folds.count()):
        fold = folds.nth(at)
        for opened in (True, False, True):
            fold.locator("summary").press("Enter")
            assert fold.evaluate("fold => fold.open") is opened
        assert fold.evaluate("fold => fold.lastElementChild.getBoundingClientRect().height") > 0


VISIBLE = "element => element.checkVisibility()"

# Elements that stand out of the window, or whose text is wider than they are and is cut there.
CUT = """() => [...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  const clipped = getComputedStyle(e).overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1;
  return box.right > innerWidth + 1 || box.left < -1 || clipped && !e.closest('svg');
}).map(e => e.outerHTML.slice(0, 200))"""

# Texts whose contrast with what is behind them is under WCAG's 4.5.
FAINT = """() => {
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
    .map(e => [light(rgb(getComputedStyle(e).color)), light(behind(e)), e.outerHTML.slice(0, 120)])
    .filter(([a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5);
}"""
