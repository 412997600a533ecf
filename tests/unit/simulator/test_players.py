"""The peers: each by its published rule."""

from __future__ import annotations

import pytest

from statecore.errors import ConfigurationError
from statecore.simulator import Outcome, Trace, World, player, simulate

WORLD = World(noise=0.0, fixed_ms=0.0, rescale_s=10, worker_start_s=0)


def play(name: str, rate: float, *, minutes: float = 60, world: World = WORLD) -> Outcome:
    return simulate(Trace([0, 60 * minutes], [rate]), world, player(name, world))


def steps(outcome: Outcome) -> list[tuple[float, int, int]]:
    return [(each.t_s, each.from_, each.to) for each in outcome.decisions]


def test_aws_doubles_after_a_quarter_of_an_hour_of_75_percent() -> None:
    # Two subtasks do 10,000 rows/s.
    assert steps(play("aws", 7_400)) == []
    # The first minute has no epoch from before.
    assert steps(play("aws", 7_600)) in ([(900, 2, 4)], [(960, 2, 4)])


def test_aws_halves_after_six_hours_below_10_percent_and_never_below_the_start() -> None:
    quiet = Trace([0, 1_200, 9 * 3600], [9_000, 400])
    outcome = simulate(quiet, WORLD, player("aws", WORLD))
    assert [(before, after) for _, before, after in steps(outcome)] == [(2, 4), (4, 2)]
    assert steps(outcome)[1][0] - 1_200 == pytest.approx(6 * 3600, abs=120)


def test_flink_waits_for_stabilisation_and_window_and_aims_at_70_percent_of_a_divisor() -> None:
    # Within 40 to 100 % it does nothing.
    assert steps(play("flink", 9_000)) == []
    # 12,000 / 0.7 plus the restart and the backlog need more than 3 subtasks; of the divisors of 128, 4 and 8 are next.
    (first, *_) = steps(play("flink", 12_000))
    assert first[:2] == (1_200, 2) and first[2] in (4, 8)


def test_flink_delays_a_scale_down_by_an_hour() -> None:
    (only,) = steps(play("flink", 1_000, minutes=120, world=World(noise=0.0, fixed_ms=0.0, parallelism=8)))
    assert only[0] == 1_200 + 3_600 and only[2] < 8


def test_ds2_meets_the_rate_exactly_after_five_intervals() -> None:
    # A subtask does 5,000 rows/s: 21,000 need five.
    first = steps(play("ds2", 21_000))[0]
    assert first[1:] == (2, 5) and first[0] >= 150


@pytest.mark.parametrize("name", ["fixed:0", "fixed:x", "fixed", "flink:2", "best"])
def test_a_policy_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected one of statecore, flink, ds2, aws, fixed:N"):
        player(name, WORLD)
