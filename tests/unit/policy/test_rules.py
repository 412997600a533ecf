"""What binds a decision beside the limits: windows, sizes known beforehand, steps, and sizes that spread evenly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import ConfigurationError
from statecore.policy import Decision, Figures, PolicyMemory, PolicySettings, decide, policy_settings, throughput
from statecore.policy.alignment import aligned
from tests.support.examples import examples
from tests.unit.policy.test_decision import NO_WAIT, NOTHING, SLACK, figures

BUSINESS = "0 8 * * 1-5 for 10h"
MARKET = "0 9 * * 1 for 2h: 8"
DAY = datetime(2026, 11, 23, tzinfo=UTC)
"""A Monday."""
FITS = figures(4, arriving=26_000.0)


def at(clock: str, found: Figures) -> Figures:
    """Return figures at a time of that day."""
    hours, minutes = map(int, clock.split(":"))
    then_ms = round(DAY.timestamp() * 1000) + (60 * hours + minutes) * 60_000
    later_ms = then_ms - found.at_ms
    moved = tuple(replace(each, committed_ms=each.committed_ms + later_ms) for each in found.epochs)
    return replace(found, at_ms=then_ms, epochs=moved)


def with_(settings: PolicySettings, **changes: Any) -> PolicySettings:
    return policy_settings(msgspec.to_builtins(settings) | changes)


def test_in_a_window_nothing_changes_and_right_after_it_what_has_been_needed_does() -> None:
    settings = with_(NO_WAIT, freeze=[BUSINESS], scale_out_after_s=300)
    short = figures(4, arriving=40_000.0)
    made = decide(at("17:00", short), settings, NOTHING)
    made = decide(at("17:59", short), settings, made.memory)
    assert made.action == "stay"
    assert made.reason.endswith("this has lasted 3540 s; frozen until 18:00 UTC by `0 8 * * 1-5 for 10h`")
    assert decide(at("18:00", short), settings, made.memory).action == "out"


def test_a_window_holds_back_a_scale_in_and_a_return_into_the_limits_too() -> None:
    settings = with_(NO_WAIT, freeze=[BUSINESS], scale_in_after_s=180)
    memory = PolicyMemory(parallelism=4, slack_since_ms=0, known_since_ms=0)
    for found in (figures(4, arriving=5_000.0), figures(20)):
        for clock, action in (("17:59", "stay"), ("18:00", "in")):
            made = decide(at(clock, found), settings, memory)
            assert (made.action, "frozen until 18:00 UTC" in made.reason) == (action, action == "stay"), made


def test_of_windows_that_overlap_the_last_end_counts_and_another_day_is_named() -> None:
    settings = with_(NO_WAIT, freeze=["0 0 * * * for 1d6h", BUSINESS], time_zone="Europe/Berlin")
    made = decide(at("12:00", figures(4, arriving=40_000.0)), settings, NOTHING)
    assert made.reason.endswith("frozen until 2026-11-24 06:00 Europe/Berlin by `0 0 * * * for 1d6h`")


def scheduled(clock: str, found: Figures | None = None, **changes: Any) -> Decision:
    # Neither waits for a need to last: of a schedule, the policy knows beforehand.
    settings = with_(NO_WAIT, at_least=[MARKET], scale_out_after_s=600, scale_in_after_s=0, **changes)
    return decide(at(clock, found or FITS), settings, NOTHING)


def test_a_schedule_has_its_size_ready_at_its_beginning() -> None:
    reason = "scheduled: at least 8 until 11:00 UTC by `0 9 * * 1 for 2h: 8`"
    assert scheduled("08:59").action == "stay"
    made = scheduled("09:00")
    assert (made.action, made.parallelism, made.reason) == ("out", 8, reason)
    # A rescale takes three minutes.
    slow = replace(FITS, rescale_ms=180_000)
    assert (scheduled("08:56", slow).action, scheduled("08:57", slow).reason) == ("stay", reason)
    assert scheduled("09:00", replace(FITS, epochs=())).parallelism == 8
    assert scheduled("10:59", figures(8, arriving=5_000.0)).action == "stay"
    assert scheduled("11:00", figures(8, arriving=5_000.0)).action == "in"
    assert scheduled("09:00", figures(16, arriving=5_000.0)).parallelism == 8


def test_a_schedule_waits_for_the_cooldown_for_a_run_and_for_a_frozen_window() -> None:
    resting = figures(4, ended_ms=at("08:59", figures()).at_ms)
    assert "scheduled: at least 8" in scheduled("09:00", resting, cooldown_s=300).reason
    assert scheduled("09:00", resting, cooldown_s=300).action == "stay"
    assert scheduled("09:00", figures(4, hindrance="run-7 has the lease")).reason.endswith("; run-7 has the lease")
    assert "frozen until 18:00 UTC" in scheduled("09:00", freeze=[BUSINESS]).reason


def test_a_schedule_never_asks_for_more_than_the_limits_allow() -> None:
    made = scheduled("09:00", figures(2, workers=2, max_workers=6))
    assert (made.parallelism, made.workers) == (6, 6)
    assert scheduled("09:00", replace(figures(2), max_parallelism=4)).parallelism == 4
    assert scheduled("09:00", figures(6, workers=6, max_workers=6)).action == "stay"
    # No whole workers have seven; a job that does keeps them.
    seven = {
        "subtasks_per_worker": 4,
        "at_least": ["0 9 * * * for 1h: 7"],
        "max_parallelism": 7,
        "scale_in_after_s": 60,
    }
    idle = replace(SLACK, parallelism=7, chosen=7)
    kept = decide(at("09:00", figures(7, workers=2, arriving=1.0)), with_(NO_WAIT, **seven), idle)
    assert (kept.action, kept.parallelism) == ("stay", 7)
    # Below the lower limit, with a schedule below it too, the limit is the reason.
    below = scheduled("09:00", figures(9), min_parallelism=10)
    assert (below.parallelism, "outside the limits 10 to 16" in below.reason) == (10, True)


def test_a_schedule_after_a_scale_in_does_not_take_it_back() -> None:
    settings, found = with_(NO_WAIT, at_least=[MARKET], scale_in_after_s=600), at("09:00", FITS)
    made = decide(found, settings, PolicyMemory(shrunk_ms=found.at_ms - 60_000))
    assert (made.action, made.memory.taken_back, made.memory.shrunk_ms) == ("out", 0, None)


def test_of_schedules_at_once_the_largest_counts() -> None:
    settings = with_(NO_WAIT, at_least=["0 0 * * * for 1d: 6", MARKET, "0 9 * * 1 for 30m: 7"])
    assert decide(at("09:00", figures(4)), settings, NOTHING).parallelism == 8
    assert decide(at("11:00", figures(4)), settings, NOTHING).parallelism == 6


def test_a_rescale_goes_no_further_than_a_step_and_says_what_would_be_needed() -> None:
    settings = with_(NO_WAIT, max_step=3, max_parallelism=32)
    made = decide(figures(4, waiting=48_000_000), settings, NOTHING)
    assert (made.action, made.parallelism) == ("out", 7)
    assert made.reason.endswith("; 12 would be needed, a step is at most 3")
    made = decide(figures(6, waiting=48_000_000), with_(settings, max_step=6), NOTHING)
    assert (made.parallelism, "a step" in made.reason) == (12, False)
    slack = PolicyMemory(parallelism=8, slack_since_ms=0, known_since_ms=0)
    made = decide(figures(8, arriving=5_000.0), with_(settings, scale_in_after_s=180), slack)
    assert (made.action, made.parallelism) == ("in", 5)
    assert made.reason.endswith("; 1 would be enough, a step is at most 3")
    # Into the limits, and up to a schedule, it goes by steps as well.
    assert decide(figures(40), settings, NOTHING).parallelism == 37
    assert scheduled("09:00", max_step=3).parallelism == 7


@pytest.mark.parametrize(("max_step", "reached"), [(1, 8), (7, 8), (8, 12)])
def test_a_step_is_of_whole_workers_and_one_at_least(max_step: int, reached: int) -> None:
    settings = with_(NO_WAIT, max_step=max_step, subtasks_per_worker=4, max_parallelism=32)
    made = decide(figures(4, workers=1, waiting=90_000_000), settings, NOTHING)
    assert (made.parallelism, made.workers) == (reached, reached // 4)


def test_at_most_so_many_rescales_a_day_are_decided() -> None:
    settings = with_(NO_WAIT, max_rescales_a_day=3)
    for found in (figures(4, waiting=48_000_000), figures(20)):
        assert decide(replace(found, made_in_a_day=2), settings, NOTHING).action != "stay"
        made = decide(replace(found, made_in_a_day=3), settings, NOTHING)
        assert made.action == "stay" and made.reason.endswith("; the limit of 3 rescales a day is reached")


def owned_by_the_busiest(parts: int, parallelism: int) -> int:
    return max(Counter(part * parallelism // parts for part in range(parts)).values())


@examples(100)
@given(
    key_groups=st.sampled_from([1, 7, 10, 128, 200]),
    partitions=st.sampled_from([None, 1, 6, 24]),
    lowest=st.integers(1, 40),
    count=st.integers(1, 60),
    step=st.integers(1, 5),
)
def test_a_size_stays_where_the_busiest_subtask_has_less_than_before_and_about_the_mean_or_no_such_size_is_near(
    key_groups: int, partitions: int | None, lowest: int, count: int, step: int
) -> None:
    sizes = [size for size in range(lowest, lowest + count * step, step) if size <= key_groups] or [key_groups]

    def fewer(size: int) -> list[int]:
        smaller = [each for each in sizes if each < size]
        return [
            parts
            for parts in (key_groups, partitions)
            if parts and owned_by_the_busiest(parts, size) < min(owned_by_the_busiest(parts, each) for each in smaller)
        ]

    even = [size for size in sizes[1:] if any(owned_by_the_busiest(n, size) / (n / size) <= 1.05 for n in fewer(size))]
    kept = aligned(sizes, key_groups, partitions)
    assert kept[0] == sizes[0]
    for size in sizes[1:]:
        near = [each for each in even if size < each <= 1.25 * size]
        assert (size in kept) == (size in even or (bool(fewer(size)) and not near)), size


@examples(100)
@given(key_groups=st.integers(1, 300), unit=st.integers(1, 4), most=st.integers(1, 300), data=st.data())
def test_alignment_keeps_a_size_for_all_work_that_the_limits_allow_and_none_far_from_the_next(
    key_groups: int, unit: int, most: int, data: Any
) -> None:
    sizes = list(range(unit, min(most, key_groups) + 1, unit)) or [key_groups]
    kept = aligned(sizes, key_groups, data.draw(st.none() | st.integers(1, 50)))
    busiest = {size: owned_by_the_busiest(key_groups, size) for size in sizes}
    for size in sizes:
        assert any(busiest[each] <= busiest[size] and each <= 1.25 * size for each in kept)


def test_sizes_that_spread_no_better_than_smaller_ones_or_unevenly_are_not_chosen() -> None:
    assert aligned(range(1, 17), 128, None) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16]
    # As many as the source has partitions: none of its readers has two.
    assert 14 in aligned(range(1, 17), 128, 14)
    # With 25, the busiest of 13 reads two, of a mean of 1.92; of 12 it reads three, of 2.1.
    assert aligned(range(11, 17), 20, 25) == [11, 13]
    # At the upper limit, an uneven size does more than any other; and of few key groups, sizes between the even ones.
    assert aligned(range(1, 10), 128, None)[-2:] == [8, 9]
    assert aligned(range(1, 11), 10, None) == [1, 2, 3, 5, 10]
    # 97,000 rows/s, and what piles up until the rescale, need 13.75 subtasks, if work divided evenly.
    found = figures(4, arriving=97_000.0)
    settings = with_(NO_WAIT, target_utilisation=0.9)
    assert decide(found, settings, NOTHING).parallelism == 14
    assert decide(found, with_(settings, align=True), NOTHING).parallelism == 16
    # Nobody rescales a job for its alignment alone, nor brings it back from its upper limit.
    settings = with_(settings, align=True, max_parallelism=14)
    assert decide(figures(14, arriving=95_000.0), settings, NOTHING).action == "stay"


def test_with_alignment_whole_key_groups_limit_the_throughput() -> None:
    found = figures(8)
    even, whole = throughput(found), throughput(found, align=True)
    assert even is not None and whole is not None
    assert (even.share(10), whole.share(8), whole.share(10)) == (1 / 10, 16 / 128, 13 / 128)
    assert whole.rows_per_second(8) == even.rows_per_second(8)
    assert whole.rows_per_second(13) == whole.rows_per_second(14) < even.rows_per_second(13)


def whole_steps(key_groups: int, per_worker: int, align: bool) -> list[int]:
    sizes = list(range(per_worker, key_groups + 1, per_worker))
    return aligned(sizes, key_groups, None) if align else sizes


@examples(400)
@given(data=st.data())
def test_a_decision_breaks_no_rule(data: Any) -> None:
    draw = data.draw
    per_worker, workers, align = draw(st.integers(1, 4)), draw(st.sampled_from([None, 2])), draw(st.booleans())
    lowest = draw(st.integers(1, 12))
    highest, key_groups = draw(st.integers(lowest, 48)), draw(st.sampled_from([16, 128]))
    max_step, asked = draw(st.sampled_from([None, 1, 3, 8])), draw(st.none() | st.integers(1, highest))
    hour = draw(st.sampled_from([7, 9, 10, 17, 18]))
    settings = with_(
        NO_WAIT,
        min_parallelism=lowest,
        max_parallelism=highest,
        subtasks_per_worker=per_worker,
        max_step=max_step,
        align=align,
        at_least=[f"0 9 * * 1 for 2h: {asked}"] if asked else [],
        freeze=draw(st.sampled_from([[], [BUSINESS], ["30 9 * * * for 1h"]])),
        max_rescales_a_day=draw(st.sampled_from([None, 2])),
    )
    now = draw(st.integers(1, min(56, key_groups)))
    found = figures(
        now,
        workers=workers,
        arriving=draw(st.floats(0, 400_000)),
        waiting=draw(st.sampled_from([0, 10**7, 10**9])),
        made_in_a_day=draw(st.integers(0, 3)),
    )
    found = at(f"{hour}:45", replace(found, max_parallelism=key_groups))
    slack = PolicyMemory(parallelism=now, slack_since_ms=0, known_since_ms=0)
    made = decide(found, settings, draw(st.sampled_from([NOTHING, slack])))
    sizes = settings.sizes(key_groups, by_worker=workers is not None)
    scheduled = asked if asked and 9 <= hour < 11 else 1
    least = min(scheduled, sizes[-1])
    if made.action == "stay":
        assert made.parallelism == now
        assert now >= least or any(each in made.reason for each in ("frozen until", "rescales a day"))
        return
    to, unit = made.parallelism, 1 if workers is None else per_worker
    assert (to > now) == (made.action == "out") and to != now
    assert BUSINESS not in settings.freeze or not 8 <= hour < 18
    assert "30 9 * * * for 1h" not in settings.freeze or hour != 9
    assert settings.max_rescales_a_day is None or found.made_in_a_day < settings.max_rescales_a_day
    sizes = [size for size in sizes if size >= least]
    allowed = aligned(sizes, key_groups, None) if align else sizes
    if allowed[-1] < scheduled < now:
        # No size of whole workers is as large as the schedule asks: a job that is larger keeps what it asks.
        allowed = [scheduled]
    steps = whole_steps(key_groups, unit, align)
    if max_step is not None:
        toward = [size for size in [*steps, *allowed] if (size > now) == (to > now) and size != now]
        assert abs(to - now) <= max(max_step, unit, min(abs(size - now) for size in toward))
    # On the way to an allowed size, a step ends at a whole worker.
    assert to in allowed or (max_step is not None and to in steps)
    if made.action == "in":
        assert to >= least
    elif max_step is None:
        assert to >= allowed[0]
    assert to <= max(now, allowed[-1])


def test_what_a_schedule_asks_between_whole_workers_is_kept_by_a_job_above_its_limits() -> None:
    settings = with_(NO_WAIT, max_parallelism=4, subtasks_per_worker=3, at_least=["0 9 * * 1 for 2h: 4"])
    made = decide(at("9:45", figures(5, workers=2)), settings, NOTHING)
    assert (made.action, made.parallelism) == ("in", 4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_step": 0}, "max_step"),
        ({"max_rescales_a_day": 0}, "max_rescales_a_day"),
        ({"freeze": ["0 8 * * 1-5 for ever"]}, "'ever'"),
        ({"at_least": ["0 9 * * 1 for 2h"]}, "a window, a colon and a parallelism"),
        ({"at_least": [MARKET], "max_parallelism": 7}, "above max parallelism 7"),
        ({"time_zone": "Berlin"}, "the time zone 'Berlin'"),
    ],
)
def test_rules_that_do_not_fit_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        policy_settings({"max_parallelism": 8, **values})
