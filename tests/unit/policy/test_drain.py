"""Estimated drain time, and arrival rates."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import accumulate

import pytest

from statecore.policy import EpochCost, arriving, estimate_drain
from tests.unit.policy.test_decision import figures


def test_a_backlog_is_drained_by_what_is_left_of_the_rate() -> None:
    # 32,000 rows/s at parallelism 4, 10,000 of which go to arrivals.
    found = figures(4, waiting=2_200_000)
    now = estimate_drain(found, 4)
    assert now.drains and now.seconds == pytest.approx(100, rel=0.05)
    assert now.at_least_s is not None and now.seconds is not None and now.at_most_s is not None
    assert now.at_least_s <= now.seconds <= now.at_most_s
    after = estimate_drain(found, 8)
    assert after.seconds == pytest.approx(2_200_000 / 54_000, rel=0.05)
    assert after.at_most_s is not None and after.at_most_s > now.seconds * 0.5
    for part in (
        "2,200,000 rows wait",
        "10,000 rows/s arrive",
        "assumed linear",
        "plus the rescale, whose time",
    ):
        assert part in after.based_on


def test_a_rescale_takes_its_time() -> None:
    found = figures(4, waiting=2_200_000, rescale_ms=60_000)
    estimate = estimate_drain(found, 8)
    assert estimate.seconds == pytest.approx(60 + 2_800_000 / 54_000, rel=0.05)
    assert "60 s for the rescale" in estimate.based_on
    assert estimate_drain(found, 4).seconds == pytest.approx(100, rel=0.05)


def test_what_is_not_known_is_not_guessed_and_what_never_drains_is_said() -> None:
    assert estimate_drain(figures(4, waiting=None), 4).drains is None
    assert "backlog unknown" in estimate_drain(figures(4, waiting=None), 4).based_on
    assert "too few epochs" in estimate_drain(replace(figures(4, waiting=9), epochs=()), 4).based_on
    never = estimate_drain(figures(4, waiting=9, arriving=50_000.0), 4)
    assert (never.drains, never.seconds) == (False, None)
    assert estimate_drain(figures(4, waiting=0), 4).seconds == 0


SECOND_MS = 1_000


def test_a_pile_after_an_outage_is_no_arrival_and_what_came_before_still_comes() -> None:
    # 100 rows/s until second 1,000, nothing for 2,000 seconds, then everything at once.
    came = [(second * SECOND_MS, 100.0 * min(second, 1_000)) for second in range(0, 3_000, 5)]
    epochs = [EpochCost(second * SECOND_MS, 2, 500, 100) for second in range(5, 1_001, 5)]
    assert arriving(came, epochs, 0, 2_999 * SECOND_MS).rate == 0
    came += [(second * SECOND_MS, 100.0 * second) for second in range(3_000, 3_060, 5)]
    assert arriving(came, epochs, 200_000, 3_060 * SECOND_MS).rate == pytest.approx(100)
    # An outage of two minutes does not even show.
    short = [(second * SECOND_MS, 100.0 * (second if not 500 <= second < 620 else 500)) for second in range(0, 700, 5)]
    assert arriving(short, (), 12_000, 700 * SECOND_MS).rate == pytest.approx(100, rel=0.01)


def test_before_the_first_quarter_of_a_minute_nothing_is_known_of_arrivals() -> None:
    assert arriving([], (), None, 0).rate is None
    assert arriving([(0, 0.0), (14_000, 50_000.0)], (), 0, 14_000).rate is None


def _arrived(*rates: float) -> list[tuple[int, float]]:
    """Return what arrived, with a rate for each span of 15 s."""
    rows = accumulate((15 * rate for rate in rates), initial=0.0)
    return [(15 * SECOND_MS * span, total) for span, total in enumerate(rows)]


def test_a_rate_that_rises_unsteadily_is_at_least_what_lasted_for_five_minutes() -> None:
    before, unsteady = [100.0] * 20, [90.0, 170.0] * 10
    assert arriving(_arrived(*before, *unsteady), (), 0, 600 * SECOND_MS).rate == pytest.approx(130)
    # A spike is over before that, and a fall counts at once.
    spike = [500.0] * 6 + [100.0] * 3
    assert arriving(_arrived(*before, *before[9:], *spike), (), 0, 600 * SECOND_MS).rate == pytest.approx(100)
    fallen = [170.0, 90.0] * 6 + [50.0] * 8
    assert arriving(_arrived(*before, *fallen), (), 0, 600 * SECOND_MS).rate == pytest.approx(50)


def test_a_rise_that_noise_hides_in_ten_minutes_shows_in_the_whole_history() -> None:
    draw = random.Random(1)
    noise = [draw.uniform(0.7, 1.3) for _ in range(100)]
    # By 1 row/s a span, which is 1 / 15 a second, from 100 to 200 rows/s.
    rising = arriving(_arrived(*((100 + span) * off for span, off in enumerate(noise))), (), 0, 1_500 * SECOND_MS)
    assert rising.rate == pytest.approx(200, rel=0.1)
    assert rising.rising == pytest.approx(1 / 15, rel=0.4)
    # Ten minutes alone would give their median, which is that of five minutes ago.
    newest = [(100 + span) * off for span, off in enumerate(noise)][-40:]
    alone = arriving(_arrived(*newest), (), 0, 600 * SECOND_MS)
    assert alone.rising == 0 and alone.rate == pytest.approx(180, rel=0.06)
    # Noise alone, a spike, a pile and a new level are no rise.
    for calm in (
        [100 * off for off in noise],
        [100.0] * 80 + [900.0] * 6 + [100.0] * 14,
        [100.0] * 90 + [9_000.0] + [100.0] * 9,
        [100 * off for off in noise[:50]] + [700 * off for off in noise[50:]],
        [(200 - span) * off for span, off in enumerate(noise)],
    ):
        assert arriving(_arrived(*calm), (), 0, 1_500 * SECOND_MS).rising == 0


def test_noise_is_how_far_two_minutes_are_off_beside_trends_new_levels_and_spikes() -> None:
    draw = random.Random(1)
    steady = [100 * draw.uniform(0.6, 1.4) for _ in range(100)]
    # Two minutes are eight spans, each off by 0.4 / √3.
    expected = 0.4 / math.sqrt(3 * 8)
    found = arriving(_arrived(*steady), (), 0, 1_500 * SECOND_MS).noise
    assert found == pytest.approx(expected, rel=0.4)
    for calm in (
        [100.0 + span for span in range(100)],
        [100.0] * 60 + [700.0] * 40,
        [100.0] * 80 + [900.0] * 6 + [100.0] * 14,
    ):
        assert arriving(_arrived(*calm), (), 0, 1_500 * SECOND_MS).noise == pytest.approx(0, abs=0.01)
    # Nine minutes show too little.
    assert arriving(_arrived(*steady[:35]), (), 0, 525 * SECOND_MS).noise == 0
