"""Goals out of reach of a policy without foresight: what the rows alone cost, and what nobody could know."""

from __future__ import annotations

import re

import pytest

from benchmarks.policies.arrivals import HOUR, steps
from benchmarks.policies.goals import Goal
from benchmarks.policies.reach import explained
from benchmarks.policies.report import misses
from benchmarks.policies.shapes import Expected, Shape
from statecore.simulator import Outcome, World, player, simulate
from statecore.simulator.simulation import Sample

# Simulated hours: measuring coverage would take twice as long.
pytestmark = pytest.mark.untraced

STEP = Shape("step", "a step", steps(1.5 * HOUR, (0, 3_000), (0.5 * HOUR, 20_000)), World(), Expected(levels=(0, 1800)))


def ours(waiting: float = 0.0) -> Outcome:
    return Outcome(samples=[Sample(5_400, 2, waiting, 0)])


def why(shape: Shape, name: str, most: float) -> str:
    return explained(shape, Goal(name, False, "", "", most), ours()).out_of_reach


def least(shape: Shape) -> float:
    """Return the fewest minutes late, by the reason that is given; 0 without one."""
    found = re.match(r"([\d.]+) min", why(shape, "SLO", 0))
    return float(found[1]) if found else 0.0


def test_core_hours_that_the_rows_alone_take_are_out_of_reach() -> None:
    # 10,000 rows/s of 200 µs, for an hour and a half.
    shape = Shape("even", "", steps(1.5 * HOUR, (0, 10_000)), World())
    assert why(shape, "core-hours", 2.9) == "the rows that ours processed take 3.0 core-hours alone"
    assert why(shape, "core-hours", 3.1) == ""
    # Half of the rows still wait: what is not done has no cost.
    dear = Goal("core-hours", False, "", "", 2.9)
    assert explained(shape, dear, ours(27_000_000)).out_of_reach == ""


def test_what_holds_needs_no_reason() -> None:
    assert explained(STEP, Goal("SLO", True, "", "", 0), ours()).out_of_reach == ""
    assert explained(STEP, Goal("rescales", False, "", ""), ours()).out_of_reach == ""


@pytest.mark.nightly
def test_before_a_step_no_size_that_is_right_is_large_enough_for_it() -> None:
    bound = least(STEP)
    assert 1 < bound < 10
    assert why(STEP, "SLO", bound - 0.1).endswith("best of the sizes that are right had nothing happened at 1800 s")
    assert why(STEP, "SLO", bound + 0.1) == ""
    # Nor does a policy that cannot know do better; one that keeps a large size does.
    for name in ("statecore", "aws"):
        assert simulate(STEP.trace, STEP.world, player(name, STEP.world)).slo_minutes >= bound
    assert simulate(STEP.trace, STEP.world, player("fixed:5", STEP.world)).slo_minutes < bound


def test_a_step_within_what_the_job_does_surprises_nobody() -> None:
    shape = Shape("step", "", steps(1.5 * HOUR, (0, 3_000), (0.5 * HOUR, 7_000)), World(), Expected(levels=(0, 1800)))
    assert why(shape, "SLO", 0.0) == ""


def test_a_job_that_fails_is_not_rescaled_before_its_last_failure_is_over() -> None:
    steady = steps(1.5 * HOUR, (0, 7_000))
    once = least(Shape("once", "", steady, World(outages=((1_800, 1_900),))))
    again = least(Shape("again", "", steady, World(outages=((1_800, 1_900), (1_960, 2_060), (2_120, 2_220)))))
    assert once > 0 and again > once + 4


def test_where_no_rescale_may_come_the_size_before_has_to_do() -> None:
    stays = Expected(stays=(0.5 * HOUR, float("inf")))
    shape = Shape("limit", "", steps(1.5 * HOUR, (0, 3_000), (0.5 * HOUR, 20_000)), World(), stays)
    # From a minute after the load rises, it is late for the rest of the hour.
    assert least(shape) == pytest.approx(59, abs=1)


@pytest.mark.nightly
def test_after_a_slow_sink_an_epoch_has_to_show_that_it_is_fast_again() -> None:
    slow = ((0.5 * HOUR, 1.0 * HOUR, 12.0),)
    world = World(parallelism=4, max_parallelism=5, sink_us_per_row=20, sink_slow=slow)
    shape = Shape("sink", "", steps(2.5 * HOUR, (0, 5_000)), world, Expected(stays=(0.5 * HOUR, HOUR)))
    assert simulate(shape.trace, world, player("statecore", world)).slo_minutes >= least(shape) > 25


def test_the_report_says_what_is_out_of_reach() -> None:
    goal = Goal("SLO", False, "9 min", "at most 1 min", 1, "8 min at the least")
    (line,) = misses({"step": STEP}, {"step": [goal]})
    assert line == "step (a step): SLO: found 9 min; expected at most 1 min; out of reach: 8 min at the least"
