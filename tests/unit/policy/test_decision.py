"""The decision: its limits and its reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from statecore.errors import ConfigurationError
from statecore.policy import (
    Ailment,
    Decision,
    EpochCost,
    Figures,
    HeavyKey,
    PolicyMemory,
    PolicySettings,
    SlowSink,
    decide,
    diagnose,
    policy_settings,
)
from statecore.policy.capacity import throughput
from statecore.policy.needs import Needs
from tests.support.examples import examples
from tests.unit.policy.test_cost import SIZES, epochs

NOW_MS = 10_000_000
NO_WAIT = PolicySettings(max_parallelism=16, scale_out_after_s=0, scale_in_after_s=0, cooldown_s=0)
NOTHING = PolicyMemory()
# Less has been enough for long.
LASTED = PolicySettings(max_parallelism=16, scale_out_after_s=0, scale_in_after_s=180, cooldown_s=0)
SLACK = PolicyMemory(parallelism=4, slack_since_ms=0, known_since_ms=0)


def figures(parallelism: int = 4, **others: Any) -> Figures:
    """A job with a throughput of 8,000 rows/s per subtask."""
    known: dict[str, Any] = {"arriving": 10_000.0, "waiting": 0, "busy": 1.0, "settled_ms": 0}
    measured = epochs(SIZES, fixed_ms=1, row_ms=0.125 / parallelism, parallelism=parallelism)
    return Figures("flights", NOW_MS, parallelism, 128, epochs=tuple(measured), **(known | others))


@examples(150)
@given(data=st.data())
def test_no_target_is_beyond_the_limits_and_more_backlog_never_asks_for_less(data: Any) -> None:
    lowest = data.draw(st.integers(1, 8))
    wanted = PolicySettings(
        min_parallelism=lowest,
        max_parallelism=data.draw(st.integers(lowest, 64)),
        subtasks_per_worker=data.draw(st.integers(1, 4)),
        scale_out_after_s=0,
        scale_in_after_s=0,
        cooldown_s=0,
        catch_up_s=data.draw(st.sampled_from([60, 900])),
        max_lag_s=data.draw(st.sampled_from([None, 60])),
    )
    key_groups = data.draw(st.sampled_from([2, 16, 128]))
    found = replace(
        figures(data.draw(st.integers(1, 20)), workers=data.draw(st.sampled_from([None, 2]))),
        max_parallelism=key_groups,
        arriving=data.draw(st.floats(0, 300_000)),
        lag_ms=data.draw(st.sampled_from([None, 0, 10**6])),
    )
    backlogs = sorted(data.draw(st.lists(st.integers(0, 10**9), min_size=2, max_size=4)))
    made = [decide(replace(found, waiting=each), wanted, NOTHING) for each in backlogs]
    sizes = wanted.sizes(key_groups, by_worker=found.workers is not None)
    for each in made:
        assert each.action == "stay" or each.parallelism in sizes
        assert each.parallelism <= max(key_groups, found.parallelism)
        if found.workers is not None and each.action != "stay":
            toward = max if each.action == "out" else min
            assert each.workers == toward(found.workers, wanted.workers_for(each.parallelism))
    assume(not any("would not help" in each.reason for each in made))
    asked = [each.parallelism for each in made]
    assert asked == sorted(asked)


def test_a_size_is_chosen_that_keeps_up_with_room_and_drains_in_time() -> None:
    # 40,000 rows/s at 90 % utilisation need 44,000, so 6 subtasks; there is no backlog.
    assert decide(figures(4, arriving=40_000.0), NO_WAIT, NOTHING).parallelism == 6
    # 48 million rows in ten minutes need 80,000 rows/s beside the 10,000 that arrive, so 12 subtasks.
    assert decide(figures(4, waiting=48_000_000), NO_WAIT, NOTHING).parallelism == 12
    assert decide(figures(4, waiting=0), LASTED, SLACK).parallelism == 2
    assert decide(figures(2, waiting=100_000), NO_WAIT, NOTHING).action == "stay"


def test_a_need_must_last_and_a_lower_one_must_last_longer() -> None:
    wanted = PolicySettings(max_parallelism=16, scale_out_after_s=30, scale_in_after_s=600, cooldown_s=0)

    def run(of: Figures, seconds: int, memory: PolicyMemory) -> tuple[int | None, PolicyMemory]:
        for second in range(0, seconds, 5):
            made = decide(replace(of, at_ms=NOW_MS + second * 1_000), wanted, memory)
            memory = made.memory
            if made.action != "stay":
                return second, memory
        return None, memory

    high, low = figures(4, arriving=40_000.0), figures(4, arriving=5_000.0)
    assert run(high, 120, NOTHING)[0] == 30
    assert run(low, 900, NOTHING)[0] == 600
    # As long as a size was needed that is larger than the one that is enough now, that one is kept.
    _, memory = run(figures(8, arriving=30_000.0), 300, NOTHING)
    assert run(figures(8, arriving=5_000.0), 200, memory)[0] is None
    # A peak in between restarts the time.
    _, memory = run(low, 500, NOTHING)
    memory = decide(replace(high, at_ms=NOW_MS + 500_000), wanted, memory).memory
    assert memory.slack_since_ms is None
    # A need at another parallelism does not count.
    _, memory = run(high, 20, NOTHING)
    assert decide(replace(figures(6, arriving=90_000.0), at_ms=NOW_MS + 60_000), wanted, memory).action == "stay"


def test_a_job_whose_size_it_has_chosen_and_that_is_idle_before_it_is_measured_shrinks() -> None:
    wanted = PolicySettings(
        min_parallelism=2, max_parallelism=16, scale_out_after_s=0, scale_in_after_s=30, cooldown_s=0
    )
    out = decide(figures(4, arriving=40_000.0), wanted, NOTHING)
    few = replace(figures(out.parallelism, arriving=0.0), epochs=figures(out.parallelism).epochs[:3])

    def later(of: Figures, seconds: int, memory: PolicyMemory) -> Decision:
        return decide(replace(of, at_ms=NOW_MS + 1_000 * seconds), wanted, memory)

    begun = later(few, 10, out.memory)
    assert begun.action == "stay" and begun.reason.endswith(
        "but nothing arrives and nothing waits; this has lasted 0 s of 60 s"
    )
    assert later(few, 69, begun.memory).action == "stay"
    shrunk = later(few, 70, begun.memory)
    assert (shrunk.action, shrunk.parallelism) == ("in", 2)
    for other in ({"waiting": 1}, {"waiting": None}, {"arriving": 1.0}, {"arriving": None}):
        broken = later(replace(few, **other), 40, begun.memory)
        assert broken.action == "stay" and later(few, 70, broken.memory).action == "stay"
    # A size that somebody else has chosen stays, and one that is chosen again.
    assert later(few, 70, replace(begun.memory, chosen=None)).action == "stay"
    elsewhere = later(replace(few, parallelism=3), 20, begun.memory).memory
    assert later(few, 300, later(few, 30, elsewhere).memory).action == "stay"
    # The memory has to suffice.
    full = replace(few, workers=out.parallelism, memory_share=0.5)
    made = later(full, 70, begun.memory)
    assert made.action == "in" and 2 < made.parallelism < out.parallelism
    assert later(replace(few, hindrance="a lease"), 70, begun.memory).action == "stay"


def test_after_a_decision_or_somebody_elses_rescale_it_rests() -> None:
    wanted = PolicySettings(max_parallelism=16, scale_out_after_s=0, cooldown_s=300)
    high = figures(4, arriving=40_000.0)
    made = decide(high, wanted, NOTHING)
    assert (made.action, replace(made.memory, effects=())) == ("out", PolicyMemory(NOW_MS, 4, chosen=made.parallelism))
    again = decide(replace(high, at_ms=NOW_MS + 299_000), wanted, made.memory)
    assert again.action == "stay" and "cooling down for another 1 s" in again.reason
    assert decide(replace(high, at_ms=NOW_MS + 300_000), wanted, again.memory).action == "out"
    assert decide(replace(high, settled_ms=NOW_MS - 10_000), wanted, NOTHING).action == "stay"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"hindrance": "run-7 has the lease on the job"}, "run-7 has the lease"),
        ({"epochs": ()}, "too few measurements"),
        ({"arriving": None}, "too few measurements"),
        ({"waiting": 10**9, "busy": 0.2}, "would not help"),
    ],
)
def test_it_stays_and_says_why(found: dict[str, Any], said: str) -> None:
    made = decide(replace(figures(4, arriving=40_000.0), **found), NO_WAIT, PolicyMemory(decided_ms=7))
    assert made.action == "stay" and said in made.reason and made.memory.decided_ms == 7


def test_a_reason_names_its_figures() -> None:
    made = decide(figures(4, arriving=40_000.0, waiting=1_234_567, lag_ms=61_000), NO_WAIT, NOTHING)
    for part in ("40,000 rows/s arrive", "1,234,567 rows wait", "lag 61 s", "100% of the time", "parallelism 4"):
        assert part in made.reason
    assert decide(figures(2, arriving=13_000.0), NO_WAIT, NOTHING).reason.endswith("; parallelism 2 stays")


def test_a_lag_beyond_its_limit_asks_for_more_only_where_rows_wait() -> None:
    wanted = PolicySettings(max_parallelism=16, max_lag_s=60, scale_out_after_s=0, cooldown_s=0)
    late = figures(4, arriving=20_000.0, lag_ms=600_000)
    assert decide(late, wanted, NOTHING).action == "stay"
    # Two of 8 million rows may wait; the others are eight minutes' work for what arrivals leave of the job.
    assert decide(replace(late, waiting=8_000_000), wanted, NOTHING).parallelism == 6
    assert decide(replace(late, waiting=8_000_000, lag_ms=1_000), wanted, NOTHING).action == "stay"
    # This will be over soon, in seven minutes.
    assert decide(replace(late, waiting=7_000_000), wanted, NOTHING).action == "stay"
    # If no source reports a backlog, the lag beyond its limit counts.
    unknown = replace(late, waiting=None, processed=20_000.0, lag_ms=4_000_000)
    assert decide(unknown, wanted, NOTHING).parallelism > 8


def test_where_rows_may_not_be_late_a_backlog_drains_in_two_thirds_of_the_catch_up_time() -> None:
    piled = figures(4, waiting=24_000_000)
    # In 600 s, 40,000 rows/s beside the 10,000 that arrive; in 400 s, 60,000.
    assert decide(piled, NO_WAIT, NOTHING).parallelism == 7
    assert decide(piled, msgspec.structs.replace(NO_WAIT, max_lag_s=60), NOTHING).parallelism == 9
    # It is no reason to rescale: 3 million drain in time at the present size, and not in two thirds of it.
    soon = figures(2, waiting=3_000_000)
    assert decide(soon, msgspec.structs.replace(NO_WAIT, max_lag_s=60), NOTHING).action == "stay"


def test_a_backlog_that_drains_before_a_rescale_would_end_is_no_reason_for_one() -> None:
    # 20 million drain in 910 s, beside the 10,000 rows/s that arrive.
    late = figures(4, waiting=20_000_000, lag_ms=600_000)
    wanted = msgspec.structs.replace(NO_WAIT, max_lag_s=60)
    assert decide(late, wanted, NOTHING).action == "out"
    assert decide(replace(late, rescale_ms=900_000), wanted, NOTHING).action == "out"
    assert decide(replace(late, rescale_ms=960_000), wanted, NOTHING).action == "stay"
    # An hour that one rescale took is no reason to leave half an hour of lateness alone.
    assert decide(replace(late, waiting=40_000_000, rescale_ms=3_600_000), wanted, NOTHING).action == "out"
    # How long the first rescale takes is not known: what is asked for counts.
    hasty = msgspec.structs.replace(NO_WAIT, catch_up_s=5)
    assert decide(figures(4, waiting=200_000), hasty, NOTHING).action == "out"


def test_a_scale_out_that_has_to_wait_for_a_long_epoch_asks_for_no_workers_before_its_end_is_near() -> None:
    # Four subtasks do 32,000 rows/s: for 25 million rows they need 781 s, or a fifth less.
    piled = replace(figures(4, arriving=30_000.0, waiting=60_000_000), left=25_000_000, started_ms=NOW_MS - 50_000)
    waits = decide(piled, NO_WAIT, NOTHING)
    assert waits.action == "stay" and waits.diagnosis is not None and waits.diagnosis.name is Ailment.TOO_SMALL
    assert waits.reason.endswith("the running epoch, which a rescale waits for, goes on for another 575 s at least")
    assert decide(replace(piled, started_ms=NOW_MS - 330_000), NO_WAIT, waits.memory).action == "out"
    # By what earlier scale-outs took, the workers would come too late.
    assert decide(replace(piled, rescale_ms=600_000), NO_WAIT, NOTHING).action == "out"
    # Nobody knows what the running epoch took, or the source allows it no more.
    for unknown in (replace(piled, left=None), replace(piled, left=2_000_000)):
        assert decide(unknown, NO_WAIT, NOTHING).action == "out"


def test_no_scale_in_comes_while_rows_are_late() -> None:
    # Two million rows are half a minute of the work of eight subtasks, and no more than an epoch has had lately.
    drained = figures(8, arriving=5_000.0, waiting=2_000_000)
    large = epochs([*SIZES, 4_000_000, 4_000_000, 4_000_000], fixed_ms=1, row_ms=0.125 / 8, parallelism=8)
    wanted = msgspec.structs.replace(NO_WAIT, max_lag_s=30)

    def found(**others: Any) -> Ailment:
        diagnosis = diagnose(replace(drained, epochs=tuple(large), **others), wanted)
        assert diagnosis is not None
        return diagnosis.name

    assert found(lag_ms=29_000) is Ailment.TOO_LARGE
    assert found(lag_ms=45_000) is Ailment.HEALTHY
    # What the job does in so short a time is no backlog: the lag is that of a silent source.
    assert found(lag_ms=45_000, waiting=1_900_000) is Ailment.TOO_LARGE
    # Nor is it that of a job that is not busy: epochs that come seldom make rows late at any size.
    assert found(lag_ms=45_000, busy=0.5) is Ailment.TOO_LARGE


def test_a_poor_measurement_widens_the_hysteresis_and_a_good_one_hardly() -> None:
    found = figures(4, arriving=31_000.0)
    measured = throughput(found)
    assert measured is not None
    assert 1.1 < Needs(found, NO_WAIT, measured).needed() / measured.rows_per_second(4) < 1.2

    def is_short(row_error: float) -> bool:
        fit = replace(measured.fit, row_error=row_error)
        return Needs(found, NO_WAIT, replace(measured, fit=fit)).is_short()

    assert [is_short(error) for error in (0.0, 0.04, 0.1)] == [True, True, False]


def test_a_poor_measurement_makes_a_scale_in_more_careful_and_a_good_one_hardly() -> None:
    # Three subtasks do 24,000 rows/s; 18,000 rows/s need 21,200 at 85 %, and a tenth more.
    found = figures(4, arriving=18_000.0)
    measured = throughput(found)
    assert measured is not None

    def enough(row_error: float) -> int:
        fit = replace(measured.fit, row_error=row_error)
        return Needs(found, NO_WAIT, replace(measured, fit=fit)).enough()

    assert [enough(error) for error in (0.0, 0.02, 0.2)] == [3, 3, 4]


def test_a_job_that_was_idle_since_its_rescale_does_not_cool_down_with_its_first_epoch() -> None:
    idle = replace(figures(2, arriving=40_000.0), settled_ms=NOW_MS - 10_000, ended_ms=NOW_MS - 7_200_000)
    before = tuple(
        replace(each, parallelism=1, duration_ms=2 * each.duration_ms, committed_ms=NOW_MS - 7_300_000)
        for each in idle.epochs
    )
    cools = msgspec.structs.replace(LASTED, cooldown_s=300)
    assert decide(replace(idle, epochs=(*before, *idle.epochs)), cools, NOTHING).action == "out"
    # Somebody else made it that size since.
    lately = tuple(replace(each, committed_ms=NOW_MS - 20_000) for each in before)
    for other in ((*lately, *idle.epochs), idle.epochs):
        assert "cooling down" in decide(replace(idle, epochs=other), cools, NOTHING).reason


def pile(ago_s: int, *, rows: float = 6e6, history_s: int = 3_600) -> tuple[tuple[int, float], ...]:
    """Arrivals: nothing, but for rows within 15 seconds."""
    from_ms = NOW_MS - 1_000 * history_s
    return tuple(
        (from_ms + at_ms, rows * (at_ms > 1_000 * (history_s - ago_s)))
        for at_ms in range(0, 1_000 * history_s + 1, 15_000)
    )


@pytest.mark.parametrize(("ago_s", "kept"), [(900, 8), (3_000, 8), (3_400, 1)])
def test_a_size_is_kept_for_a_pile_for_almost_an_hour(ago_s: int, kept: int) -> None:
    # More than 6 minutes for two subtasks, where one is allowed; and 94 s for eight, which would be later with less.
    piled = figures(8, arriving=1_000.0, arrived=pile(ago_s))
    assert (
        decide(piled, msgspec.structs.replace(LASTED, max_lag_s=60.0), replace(SLACK, parallelism=8)).parallelism
        == kept
    )


@pytest.mark.parametrize(("arriving", "to"), [(6_300.0, 3), (6_500.0, 2)])
def test_a_size_that_is_busy_between_piles_is_judged_by_ten_minutes(arriving: float, to: int) -> None:
    # Two subtasks do 16,000 rows/s.
    piled = figures(3, arriving=arriving, arrived=pile(2_000))
    wanted = msgspec.structs.replace(LASTED, min_parallelism=2, max_lag_s=60.0)
    assert decide(piled, wanted, replace(SLACK, parallelism=3, chosen=3)).parallelism == to


def test_the_end_of_a_load_before_that_hour_is_no_pile() -> None:
    # 40,000 rows/s for 20 minutes until 54 minutes ago, and a pile since.
    loaded = [
        (at_ms, 8e6 + 40.0 * min(0, at_ms - NOW_MS + 3_240_000) + rows)
        for at_ms, rows in pile(900, rows=4e6, history_s=4_440)
    ]
    found = figures(2, arriving=1_000.0, arrived=tuple(loaded))
    assert decide(found, msgspec.structs.replace(NO_WAIT, max_lag_s=60.0), NOTHING).action == "stay"


def test_what_a_smaller_size_is_kept_for_is_not_refused_to_one_in_between() -> None:
    # With one subtask, what comes after the pile is a part of it, and makes it too long for one.
    from_ms = NOW_MS - 3_600_000
    arrived = tuple(
        (
            from_ms + at_ms,
            60.0 * min(90_000, max(0, at_ms - 2_400_000)) + 10.0 * min(300_000, max(0, at_ms - 2_490_000)),
        )
        for at_ms in range(0, 3_600_001, 15_000)
    )
    found = diagnose(figures(8, arriving=1_000.0, arrived=arrived), msgspec.structs.replace(LASTED, max_lag_s=60.0))
    assert found is not None and found.kept == 5


def test_piles_forty_minutes_apart_get_a_size_that_is_through_in_time() -> None:
    # 150 s for four subtasks.
    twice = [
        (at_ms, first + second)
        for (at_ms, first), (_, second) in zip(pile(200, rows=4.8e6), pile(2_600, rows=4.8e6), strict=True)
    ]
    wanted = msgspec.structs.replace(NO_WAIT, max_lag_s=60.0)
    made = decide(figures(4, arriving=1_000.0, arrived=tuple(twice), busy=0.3), wanted, NOTHING)
    # In 75 s since a pile began, and a tenth sooner if a row should be dearer than it seems.
    assert (made.action, made.parallelism) == ("out", 9)
    once = figures(4, arriving=1_000.0, arrived=pile(200, rows=4.8e6))
    assert decide(once, wanted, NOTHING).action == "stay"


# A subtask does 8,000 rows/s; four are short, beyond the hysteresis, from 29,900 on.
@pytest.mark.parametrize(
    ("low_s", "high", "kept"),
    [(900, 40.0, 6), (1_260, 40.0, 6), (1_620, 40.0, 1), (900, 31.0, 5), (900, 29.0, 4)],
)
def test_a_load_that_came_after_a_while_may_come_again_after_as_long(low_s: int, high: float, kept: int) -> None:
    # It was high for 20 minutes, 2,000 rows/s for 20 minutes before, and as few since.
    from_ms = NOW_MS - 1_000 * (2_400 + low_s)
    arrived = tuple(
        (from_ms + at_ms, 2.0 * at_ms + (high - 2.0) * min(1_200_000, max(0, at_ms - 1_200_000)))
        for at_ms in range(0, NOW_MS - from_ms + 1, 15_000)
    )
    found = diagnose(figures(8, arriving=2_000.0, arrived=arrived), msgspec.structs.replace(LASTED, max_lag_s=60.0))
    assert found is not None and (found.parallelism, found.kept) == (1, kept)


@pytest.mark.parametrize("max_lag_s", [None, 599.0])
def test_rows_that_still_wait_at_a_smaller_size_would_be_late_too(max_lag_s: float | None) -> None:
    # 12 million rows nine minutes ago: 25 minutes of work for one subtask.
    from_ms = NOW_MS - 600_000
    arrived = tuple((from_ms + at_ms, 12e6 * (at_ms >= 60_000)) for at_ms in range(0, 600_001, 15_000))
    piled = figures(16, arriving=1_000.0, arrived=arrived)
    wanted = msgspec.structs.replace(LASTED, max_lag_s=max_lag_s)
    found = decide(piled, wanted, replace(SLACK, parallelism=16)).diagnosis
    assert found is not None and found.parallelism == 1 and found.kept > 1


@pytest.mark.parametrize(("scale_in_after_s", "enough"), [(0, 4), (60, 4), (180, 5)])
def test_a_rising_load_leaves_a_size_that_lasts_for_twice_the_time_that_a_scale_in_waits(
    scale_in_after_s: float, enough: int
) -> None:
    # One subtask does 8,000 rows/s. In two minutes 23,600 rows/s arrive, in six 30,800.
    rises = figures(8, arriving=20_000.0, rising=30.0)
    found = diagnose(rises, msgspec.structs.replace(NO_WAIT, scale_in_after_s=scale_in_after_s))
    assert found is not None and found.parallelism == enough


@pytest.mark.parametrize(("now", "arriving", "enough"), [(2, 5_300.0, 1), (2, 5_600.0, 2), (4, 13_000.0, 2)])
def test_one_subtask_is_enough_where_it_has_more_room_than_several_need(now: int, arriving: float, enough: int) -> None:
    found = diagnose(figures(now, arriving=arriving), NO_WAIT)
    assert found is not None and found.parallelism == enough


def test_a_size_that_is_enough_is_not_short_with_the_same_figures() -> None:
    rises = figures(8, arriving=26_000.0, rising=60.0)
    found = diagnose(rises, NO_WAIT)
    assert found is not None
    smaller = replace(figures(found.parallelism, arriving=26_000.0), rising=60.0)
    again = diagnose(smaller, NO_WAIT)
    assert again is not None and again.name is not Ailment.TOO_SMALL


def test_a_worker_that_is_full_gets_another_one_and_not_more_subtasks() -> None:
    made = decide(
        figures(2, memory_share=0.85, workers=1), msgspec.structs.replace(NO_WAIT, subtasks_per_worker=4), NOTHING
    )
    assert (made.action, made.parallelism, made.workers) == ("out", 8, 2)


def test_more_workers_come_before_one_is_killed_for_its_memory() -> None:
    full = figures(4, memory_share=0.85)
    made = decide(replace(full, workers=4), NO_WAIT, NOTHING)
    assert (made.action, made.parallelism, made.workers) == ("out", 5, 5) and "85% of its memory" in made.reason
    # More subtasks on the same workers need as much.
    stays = decide(full, NO_WAIT, NOTHING)
    assert stays.action == "stay" and "give the workers more memory" in stays.reason
    assert decide(replace(full, workers=4, memory_share=0.79), NO_WAIT, NOTHING).action != "out"


def test_a_scale_in_leaves_every_worker_the_memory_for_what_all_hold_now() -> None:
    idle = figures(8, workers=8, memory_share=0.4, arriving=1_000.0)
    memory = replace(SLACK, parallelism=8, chosen=8)
    made = decide(idle, LASTED, memory)
    # Of 8 × 0.4, a fifth is 0.64 and a quarter 0.8.
    assert (made.action, made.parallelism, made.workers) == ("in", 5, 5)
    assert "at 1 a worker would use 320% of its memory" in made.reason
    assert decide(replace(idle, memory_share=None), LASTED, memory).parallelism == 1
    # Fewer subtasks on the same workers need as much.
    assert decide(replace(idle, workers=None), LASTED, memory).parallelism == 1
    stays = decide(replace(idle, memory_share=0.7), LASTED, memory)
    assert stays.action == "stay" and stays.diagnosis is not None and stays.diagnosis.name == "healthy"
    assert "at 1 a worker would use 560% of its memory" in stays.reason


def test_a_scale_in_saves_a_fifth_at_least_and_most_of_what_it_can() -> None:
    def made(needed: int, at_last: float) -> str:
        memory = replace(SLACK, parallelism=8, chosen=8, needed=((NOW_MS - 100_000, needed),), known_since_ms=0)
        return decide(figures(8, arriving=at_last), LASTED, memory).reason

    assert "7 would not be worth a rescale" in made(7, 5_000.0)
    assert "soon still less will have been enough" in made(6, 5_000.0)
    assert "this has lasted" in made(6, 36_000.0)


def test_it_does_not_scale_in_while_too_much_arrives_for_the_smaller_size() -> None:
    calm = [(at_ms, 5.0 * at_ms) for at_ms in range(NOW_MS - 600_000, NOW_MS, 15_000)]
    idle = figures(4, arriving=5_000.0, arrived=(*calm, (NOW_MS, 5.0 * NOW_MS)))
    assert decide(idle, LASTED, SLACK).parallelism == 1
    # 30,000 rows/s for fifteen seconds; or 10,000: what arrived in half a minute, a subtask does, but without headroom.
    for more in (375_000, 75_000):
        begins = replace(idle, arrived=(*calm, (NOW_MS, 5.0 * NOW_MS + more)))
        stays = decide(begins, LASTED, SLACK)
        assert stays.action == "stay" and stays.reason.endswith("but just now too much arrives for 1"), more


def test_unsteady_arrivals_get_more_headroom() -> None:
    def needed(noise: float) -> float:
        found = figures(4, arriving=10_000.0, arriving_noise=noise)
        measured = throughput(found)
        assert measured is not None
        return Needs(found, NO_WAIT, measured).needed()

    assert needed(0.0) == pytest.approx(10_000 / 0.85)
    assert needed(0.05) == pytest.approx(11_834, rel=0.001)
    # Not without limit.
    assert needed(0.1) == needed(0.3) == pytest.approx(12_028, rel=0.001)


def test_a_job_outside_of_its_limits_is_brought_back() -> None:
    made = decide(figures(20), NO_WAIT, NOTHING)
    assert (made.action, made.parallelism) == ("in", 16) and "outside the limits 1 to 16" in made.reason


@pytest.mark.parametrize(
    ("now", "limits", "to"), [(2, (1, 16), 2), (15, (1, 16), 15), (6, (1, 6), 6), (2, (3, 16), 4), (7, (1, 6), 4)]
)
def test_a_size_between_those_of_whole_workers_is_within_the_limits(now: int, limits: tuple[int, int], to: int) -> None:
    wanted = PolicySettings(min_parallelism=limits[0], max_parallelism=limits[1], subtasks_per_worker=4)
    made = decide(figures(now, workers=-(-now // 4), arriving=7_000.0 * now), wanted, NOTHING)
    assert made.parallelism == to
    assert (f"outside the limits {limits[0]} to {limits[1]}" in made.reason) == (to != now)


def test_at_the_limit_a_job_between_sizes_of_whole_workers_is_told_a_limit_beyond_its_own() -> None:
    wanted = PolicySettings(max_parallelism=6, subtasks_per_worker=4)
    made = decide(figures(6, workers=2, arriving=50_000.0, waiting=5_000_000), wanted, NOTHING)
    assert made.action == "stay" and made.diagnosis is not None and made.diagnosis.name is Ailment.AT_LIMIT
    assert "allow more than 6" in made.reason


@pytest.mark.parametrize(
    ("parallelism", "hindrance", "said"),
    [(2, "the job has no live driver", "no live driver"), (20, None, "outside the limits 1 to 16")],
)
def test_what_hinders_the_policy_does_not_hide_what_was_found(
    parallelism: int, hindrance: str | None, said: str
) -> None:
    found = figures(parallelism, crashes=3, crash="out of memory", hindrance=hindrance)
    made = decide(found, NO_WAIT, NOTHING)
    assert "out of memory" in made.reason and said in made.reason


def test_a_hindrance_is_the_same_news_with_and_without_measurements() -> None:
    stopped = figures(2, hindrance="the job has no live driver")
    held = {decide(found, NO_WAIT, NOTHING).memory.held for found in (stopped, replace(stopped, epochs=()))}
    assert held == {"the job has no live driver"}


def test_the_cooldown_counts_from_the_end_of_a_rescale_and_doubles_with_each_failure() -> None:
    calm = PolicySettings(max_parallelism=16, scale_out_after_s=0, cooldown_s=300)
    for failures, rest_s in ((0, 300), (1, 600), (2, 1_200)):
        for since_s in (rest_s - 1, rest_s):
            # It was decided long before: the rescale waited for workers that never came.
            ended_ms, memory = NOW_MS - 1_000 * since_s, PolicyMemory(decided_ms=NOW_MS - 9_000_000)
            found = figures(waiting=90_000_000, ended_ms=ended_ms, failures=failures, failure="no quota")
            made = decide(found, calm, memory)
            assert made.action == ("out" if since_s == rest_s else "stay"), (failures, since_s, made)
    assert made.reason.startswith("10,000 rows/s arrive")
    # Also for somebody who wants no cooldown.
    found = figures(waiting=90_000_000, ended_ms=NOW_MS - 119_000, failures=1)
    assert "cooling down for another 1 s after failures in a row: 1" in decide(found, NO_WAIT, NOTHING).reason


def test_after_three_failures_in_a_row_the_policy_waits_for_a_person_and_says_so() -> None:
    made = decide(figures(waiting=90_000_000, failures=3, failure="no quota"), NO_WAIT, NOTHING)
    assert made.diagnosis is not None
    assert (made.action, made.reason) == (
        "stay",
        f"{made.diagnosis.text}; blocked: the last 3 rescales of this policy failed, the newest with: no quota; remove "
        "the cause, then unblock the policy with `statecore policy set flights --on`",
    )


def test_no_size_is_decided_that_the_cluster_would_refuse() -> None:
    most = decide(figures(2, workers=2, max_workers=3, waiting=90_000_000), NO_WAIT, NOTHING)
    assert (most.action, most.parallelism, most.workers) == ("out", 3, 3)
    # Four subtasks run on its only worker, although the settings say one; it is not taken in for that.
    full = decide(figures(4, workers=1, max_workers=1, waiting=90_000_000), NO_WAIT, NOTHING)
    assert full.action == "stay"


def test_no_worker_comes_on_the_way_in_and_none_goes_on_the_way_out() -> None:
    # One subtask a worker is the default; this job runs four on its only worker.
    less = decide(figures(4, workers=1, arriving=1_000.0), LASTED, SLACK)
    assert (less.action, less.parallelism < 4, less.workers) == ("in", True, 1)
    more = decide(figures(2, workers=9, waiting=20_000_000), NO_WAIT, NOTHING)
    assert (more.action, more.parallelism, more.workers) == ("out", 6, 9)


def test_sizes_are_whole_workers_within_the_limits() -> None:
    wanted = PolicySettings(min_parallelism=3, max_parallelism=11, subtasks_per_worker=4)
    assert wanted.sizes(128, by_worker=True) == [4, 8]
    assert wanted.sizes(128, by_worker=False) == list(range(3, 12))
    assert wanted.sizes(2, by_worker=True) == [2]
    assert [wanted.workers_for(each) for each in (2, 4, 5)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "max_parallelism"),
        ({"max_parallelism": 4, "min_parallelism": 5}, "min parallelism 5 above max parallelism 4"),
        ({"max_parallelism": 4, "target_utilisation": 1.5}, "target_utilisation"),
        ({"max_parallelism": 4, "cool_down": 1}, "cool_down"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        policy_settings(values)


@pytest.mark.parametrize(
    ("sink", "said"), [(None, "of an epoch: look"), (SlowSink("audit", 0.9), "and the sink audit takes 90% of that")]
)
def test_a_slow_sink_is_called_by_its_name_when_it_is_known(sink: SlowSink | None, said: str) -> None:
    slow = [
        replace(each, read_ms=0.0, work_ms=0.02 * each.rows, publish_ms=0.18 * each.rows)
        for each in epochs(SIZES, fixed_ms=1, row_ms=0.2, parallelism=4)
    ]
    found = diagnose(replace(figures(), epochs=tuple(slow), slowest_sink=sink), NO_WAIT)
    assert found is not None and found.name == "sink_bound"
    assert "publishing takes 9" in found.text and said in found.text


def test_a_sink_that_has_just_become_slow_makes_no_job_too_small() -> None:
    # (rows, duration, run, read, publish) of a job on Spark, whose sink became slow at the seventh epoch.
    measured = [
        (300, 6_669, 6_605, 5_100, 19),
        (1_200, 5_538, 5_153, 638, 193),
        (600, 3_052, 2_884, 675, 114),
        (900, 4_738, 4_285, 631, 33),
        (300, 1_946, 1_827, 440, 25),
        (1_200, 5_510, 5_462, 389, 24),
        (600, 6_467, 2_728, 385, 3_677),
        (900, 9_922, 4_407, 467, 5_476),
        (300, 4_135, 2_083, 798, 2_002),
        (1_200, 11_033, 3_703, 562, 7_280),
        (600, 5_783, 2_097, 421, 3_657),
    ]
    costs = tuple(
        EpochCost(number, 2, rows, took_ms, read_ms, run_ms - read_ms, publish_ms)
        for number, (rows, took_ms, run_ms, read_ms, publish_ms) in enumerate(measured)
    )
    known = figures(2, arriving=131.0, waiting=3_120, epoch_limit=1_200, busiest_share=0.74)
    known = replace(known, epochs=costs, heavy_keys=(HeavyKey("UA", 0.6),))
    found = diagnose(known, PolicySettings(min_parallelism=2, max_parallelism=4, catch_up_s=10))
    assert found is not None and found.name == "sink_bound"
