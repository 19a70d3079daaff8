"""Times and sizes, as people read them."""

from __future__ import annotations

import pytest

from builder import units


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (59.4, "59.4 s"), (59.97, "1:00 min"), (185.0, "3:05 min"), (3723.0, "1:02:03 h")],
)
def test_times_are_short_to_read(seconds: float, shown: str) -> None:
    assert units.clock(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (5_600, "5.6 kB"), (3_400_000, "3.4 MB"), (76_000_000_000, "76.0 GB")],
)
def test_sizes_have_the_unit_that_makes_them_short(count: int, shown: str) -> None:
    assert units.size(count) == shown
