"""The simulation of a farm, by cases that were computed by hand."""

from __future__ import annotations

import pytest

from benchmarks import farm
from benchmarks.farm import Job, Step


def job(name: str, compiled: str, own: float, *, compile_minutes: float = 60, arrived: float = 0) -> Job:
    return Job(name, arrived, (Step(compiled, "compile", compile_minutes), Step(name, "vime", own)))


def test_one_engine_compiles_once_for_two_images() -> None:
    month = farm.simulate([job("a", "x", 10), job("b", "x", 20)], 1, farm.shortest)
    assert (month.waits, month.hours("ran", "compile"), month.end) == ([70, 90], 1.0, 90)


def test_two_engines_without_a_registry_compile_twice() -> None:
    month = farm.simulate([job("a", "x", 10), job("b", "x", 20)], 2, farm.shortest)
    assert (month.waits, month.hours("ran", "compile")) == ([70, 80], 2.0)


def test_a_registry_has_the_steps_of_an_image_once_that_is_built() -> None:
    jobs = [job("a", "x", 10), job("b", "x", 20, arrived=69), job("c", "x", 5, arrived=70)]
    month = farm.simulate(jobs, 3, farm.arrival, shared=True)
    assert month.waits == [70, 80, 6 + 5]  # c pulls the compile, at a tenth of its time
    assert month.hours("pulled") == pytest.approx(0.1)


def test_two_builds_at_a_time_on_one_engine_run_a_step_once_and_one_waits() -> None:
    month = farm.simulate([job("a", "x", 10), job("b", "x", 20)], 1, farm.shortest, at_a_time=2)
    assert (month.waits, month.hours("waited"), month.hours("ran", "compile")) == ([70, 80], 1.0, 1.0)


def test_longest_first_has_two_images_wait_for_one_compile_where_another_could_run() -> None:
    """By hand: a and b compile x together until 60, a ends at 90, b at 80; then c and d the same with y."""
    jobs = [job("a", "x", 30), job("b", "x", 20), job("c", "y", 10), job("d", "y", 5)]
    month = farm.simulate(jobs, 1, farm.longest, at_a_time=2)
    assert month.waits == [90, 80, 80 + 70, 80 + 65]  # d begins at 90, and has the compile at 140


def test_no_compile_is_run_beside_its_like() -> None:
    """By hand: d compiles y and b compiles x; at 65 c is next, y is done; at 80 a."""
    jobs = [job("a", "x", 30), job("b", "x", 20), job("c", "y", 10), job("d", "y", 5)]
    month = farm.simulate(jobs, 1, farm.apart, at_a_time=2)
    assert (month.waits, month.hours("waited")) == ([65, 80, 75, 75 + 30], 0.0)


def test_one_of_each_compile_stands_first_in_a_list() -> None:
    jobs = [job("a", "x", 30), job("b", "x", 20), job("c", "y", 40)]
    assert farm.simulate(jobs, 1, farm.one_of_each).waits == [80, 80 + 100, 80 + 100 + 30]


def test_what_comes_later_does_not_begin_before_it_came() -> None:
    month = farm.simulate([job("a", "x", 0), job("b", "y", 0, arrived=200)], 2, farm.longest)
    assert (month.waits, month.end) == ([60, 60], 260)


def test_a_seed_is_a_month_and_another_seed_is_another() -> None:
    assert farm.month_of_bumps(300, 1) == farm.month_of_bumps(300, 1) != farm.month_of_bumps(300, 2)


def test_a_bump_makes_stale_what_has_the_pin_and_a_later_step_is_another_after_it() -> None:
    jobs = farm.month_of_bumps(300)
    vime = farm.IMAGES * farm.BUMPS["vime"]
    families = farm.IMAGES // farm.A_FAMILY
    compiles = families * farm.BUMPS["compile"] * farm.A_FAMILY
    assert len(jobs) == farm.IMAGES * (1 + farm.BUMPS["base"]) + compiles + vime
    last = {one.name: one for one in jobs}["00"]
    first = jobs[0]
    assert not {step.key for step in first.steps} & {step.key for step in last.steps}
