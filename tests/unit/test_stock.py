"""What stands in for a base's packages is made once, by whoever comes first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from builder import facts, manifest, stock

ROOT = Path(__file__).parents[2]


def test_two_runs_at_once_on_a_fresh_machine_have_the_same_build_tools(tmp_path: Path) -> None:
    written = manifest.load(ROOT / "images" / "rocm7.14.yaml")
    known = facts.of(written, ROOT)
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(lambda _: stock.tools(written, known, tmp_path), range(3))
    assert others == [first, first]
    assert len(first) == len(stock.tool_lines(written))
