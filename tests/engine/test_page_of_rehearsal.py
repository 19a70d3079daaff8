"""The HTML report of a rehearsal: what the image itself says stands in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builder import page
from builder.build import Order
from builder.engine import Engine
from builder.report import Report


def test_the_page_of_a_rehearsal_has_its_pins_layers_and_sealed_distributions(
    engine: Engine, clean: tuple[Order, Report], tmp_path: Path
) -> None:
    _, report = clean
    contents = page.contents_of(engine, report)
    assert contents.unknown == {}
    text = page.write(tmp_path, "vime:demo", report, contents, {}).read_text()
    assert "<b>unknown</b>" in text.partition('id="changes"')[2].partition("</section>")[0], "there is no earlier one"
    assert text.count("<b>unknown</b>") == 1
    assert contents.sealed is not None
    assert contents.sealed["torch"] == "base"
    assert contents.flavours["torch"].startswith("rocm")
    assert report.checks[0].name in text
    assert all(step.began is not None for step in report.steps if not step.cached)
    again = page.write(tmp_path, "vime:demo", report, contents, {}).read_text()
    assert "Nothing differs in pins" in again


def test_an_image_that_tells_nothing_has_a_page_that_says_so(
    engine: Engine, clean: tuple[Order, Report], tiny: str, tmp_path: Path
) -> None:
    foreign = replace(clean[1], image_id=engine.image_id(tiny) or "")
    text = page.write(tmp_path, "vime:demo", foreign, page.contents_of(engine, foreign), {}).read_text()
    assert text.count("is none of our images") == 3
