"""How long scale-ins wait, and what those that were taken back change about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from statecore.policy import Decision, Figures, PolicyMemory, PolicySettings, decide
from tests.unit.policy.test_decision import LASTED, NOW_MS, SLACK, figures


def test_a_scale_in_that_had_to_be_taken_back_waits_twice_as_long_the_next_time() -> None:
    memory = replace(SLACK, parallelism=4)
    made = decide(figures(4, arriving=5_000.0), LASTED, memory)
    assert (made.action, made.memory.shrunk_ms) == ("in", NOW_MS)
    soon = replace(figures(1, arriving=40_000.0), at_ms=NOW_MS + 1_000_000)
    back = decide(soon, LASTED, made.memory)
    assert (back.action, back.memory.taken_back, back.memory.shrunk_ms) == ("out", 1, None)
    assert back.memory.restored == back.parallelism == 6
    later = replace(figures(1, arriving=40_000.0), at_ms=NOW_MS + 2_000_000)
    assert decide(later, LASTED, made.memory).memory.taken_back == 0
    lately_ms = NOW_MS - 300_000
    patient = replace(SLACK, taken_back=1, restored=8, known_since_ms=lately_ms, slack_since_ms=lately_ms)
    waits = decide(figures(4, arriving=5_000.0), LASTED, patient)
    assert waits.action == "stay" and "300 s of 360 s" in waits.reason


@pytest.mark.parametrize(
    ("arriving", "restored", "known_s", "to"),
    [
        # One subtask does 8,000 rows/s. Two have to be enough for as long as ever, one for twice as long.
        (12_000.0, 2, 200, 2),
        (12_000.0, 3, 200, 3),
        (20_000.0, 2, 200, 3),
        (5_000.0, 2, 200, 2),
        (5_000.0, 2, 360, 1),
        # To four is less than three quarters of the way to one, so one is waited for.
        (5_000.0, 4, 200, 8),
        (5_000.0, 4, 360, 1),
        (5_000.0, 8, 359, 8),
        (5_000.0, 8, 360, 1),
    ],
)
def test_only_sizes_below_one_that_a_scale_in_was_taken_back_to_wait_longer(
    arriving: float, restored: int, known_s: int, to: int
) -> None:
    since_ms = NOW_MS - 1000 * known_s
    memory = PolicyMemory(
        parallelism=8, chosen=8, taken_back=1, restored=restored, known_since_ms=since_ms, slack_since_ms=since_ms
    )
    assert decide(figures(8, arriving=arriving), LASTED, memory).parallelism == to


@pytest.mark.parametrize(("needed_s", "to"), [(300, 3), (361, 1)])
def test_what_was_needed_within_the_longer_time_counts_as_far_as_the_scale_in_was_taken_back(
    needed_s: int, to: int
) -> None:
    needed = ((NOW_MS - 1000 * needed_s, 5),)
    memory = replace(SLACK, parallelism=16, chosen=16, taken_back=1, restored=3, needed=needed)
    assert decide(figures(16, arriving=5_000.0), LASTED, memory).parallelism == to


def test_a_size_that_a_scale_in_was_taken_back_to_counts_for_the_next_one_that_is_allowed_now() -> None:
    since_ms = NOW_MS - 200_000
    memory = PolicyMemory(
        parallelism=12, chosen=12, taken_back=1, restored=3, known_since_ms=since_ms, slack_since_ms=since_ms
    )
    by_worker = msgspec.structs.replace(LASTED, subtasks_per_worker=2)
    made = decide(figures(12, arriving=5_000.0, workers=6), by_worker, memory)
    assert (made.action, made.parallelism, made.workers) == ("in", 4, 2)
    # All that is allowed is smaller.
    limited = msgspec.structs.replace(LASTED, max_parallelism=8)
    memory = replace(memory, parallelism=8, chosen=8, restored=16)
    assert "200 s of 360 s" in decide(figures(8, arriving=5_000.0), limited, memory).reason


def test_the_largest_size_that_a_scale_in_was_taken_back_to_counts_until_as_many_have_proved_right() -> None:
    shrunk = PolicyMemory(
        parallelism=2, chosen=2, shrunk_ms=NOW_MS - 60_000, shrunk_from=4, shrunk_to=2, taken_back=1, restored=8
    )
    again = decide(figures(2, arriving=25_000.0), LASTED, shrunk).memory
    assert (again.taken_back, again.restored) == (2, 8)
    proved = replace(shrunk, shrunk_ms=0, slack_since_ms=0, known_since_ms=0)
    once = decide(figures(2, arriving=1_000.0), LASTED, proved).memory
    assert (once.taken_back, once.restored) == (0, 0)
    twice = decide(figures(2, arriving=1_000.0), LASTED, replace(proved, taken_back=2)).memory
    assert (twice.taken_back, twice.restored) == (1, 8)
    # One to a size that none was taken back to proves nothing about smaller ones.
    other = decide(figures(2, arriving=1_000.0), LASTED, replace(proved, restored=2)).memory
    assert (other.taken_back, other.restored) == (1, 2)


@pytest.mark.parametrize(("to", "is_back"), [(6, False), (7, True)])
def test_a_load_that_rises_slowly_takes_no_scale_in_back_before_it_is_where_it_was(to: int, is_back: bool) -> None:
    shrunk = PolicyMemory(parallelism=2, chosen=2, shrunk_ms=NOW_MS - 60_000, shrunk_from=8)
    # One subtask does 8,000 rows/s.
    made = decide(figures(2, arriving=6_800.0 * (to - 0.5)), LASTED, shrunk)
    assert (made.parallelism, made.memory.taken_back) == (to, int(is_back))
    assert made.memory.shrunk_from == (None if is_back else 8)


def test_a_load_that_rises_back_in_steps_takes_the_scale_in_back_with_the_last() -> None:
    shrunk = PolicyMemory(parallelism=6, chosen=6, shrunk_ms=NOW_MS - 60_000, shrunk_from=8, shrunk_to=2)
    made = decide(figures(6, arriving=51_000.0), LASTED, shrunk)
    assert (made.parallelism, made.memory.taken_back, made.memory.shrunk_from) == (8, 1, None)
    # A step that the settings limit does not hide how much is needed.
    stepped = decide(figures(2, arriving=51_000.0), msgspec.structs.replace(LASTED, max_step=1), shrunk)
    assert (stepped.parallelism, stepped.memory.taken_back) == (3, 1)
    # Nor does a limit that is lower now.
    limited = decide(figures(2, arriving=51_000.0), msgspec.structs.replace(LASTED, max_parallelism=5), shrunk)
    assert (limited.parallelism, limited.memory.taken_back) == (5, 1)


@pytest.mark.parametrize(
    ("now", "ago_s", "is_back"),
    [(6, 361, False), (6, 359, True), (2, 361, True), (2, 1_081, False)],
    ids=["slowly", "slowly, but soon", "at once", "at once, but late"],
)
def test_a_load_that_rises_slowly_takes_a_scale_in_back_only_if_that_saved_little(
    now: int, ago_s: int, is_back: bool
) -> None:
    shrunk = PolicyMemory(parallelism=now, chosen=now, shrunk_ms=NOW_MS - 1000 * ago_s, shrunk_from=8, shrunk_to=5)
    made = decide(figures(now, arriving=47_000.0), LASTED, shrunk)
    assert (made.parallelism, made.memory.taken_back) == (7, int(is_back))


def test_a_load_that_is_back_slowly_leaves_nothing_to_be_taken_back() -> None:
    shrunk = PolicyMemory(parallelism=6, chosen=6, shrunk_ms=NOW_MS - 700_000, shrunk_from=8, shrunk_to=6)
    made = decide(figures(6, arriving=51_000.0), LASTED, shrunk)
    assert (made.parallelism, made.memory.taken_back, made.memory.shrunk_from) == (8, 0, None)


def test_a_scale_in_without_the_memory_is_taken_back_though_little_arrives() -> None:
    shrunk = PolicyMemory(parallelism=2, chosen=2, shrunk_ms=NOW_MS - 700_000, shrunk_from=3, shrunk_to=2)
    made = decide(figures(2, arriving=1_000.0, memory_share=0.85, workers=2), LASTED, shrunk)
    assert (made.action, made.memory.taken_back) == ("out", 1)


def test_a_downtime_that_has_to_be_worth_it_counts_for_what_a_scale_in_saved() -> None:
    shrunk = PolicyMemory(parallelism=6, chosen=6, shrunk_ms=NOW_MS - 1000_000, shrunk_from=8, shrunk_to=5)
    made = decide(figures(6, arriving=47_000.0, downtime_ms=30_000), LASTED, shrunk)
    assert (made.action, made.memory.taken_back) == ("out", 1)


@pytest.mark.parametrize(("shrunk_to", "ago_s", "from_"), [(4, 60, 16), (2, 60, 4), (4, 6_000, 4)])
def test_scale_ins_in_a_row_are_one_until_the_load_rises_or_they_have_proved_right(
    shrunk_to: int, ago_s: int, from_: int
) -> None:
    memory = replace(SLACK, shrunk_ms=NOW_MS - 1_000 * ago_s, shrunk_from=16, shrunk_to=shrunk_to)
    made = decide(figures(4, arriving=5_000.0), LASTED, memory)
    assert (made.action, made.memory.shrunk_from, made.memory.shrunk_to) == ("in", from_, made.parallelism)


def test_a_load_more_than_ten_minutes_ago_counts_once_a_scale_in_was_taken_back() -> None:
    # 8 million rows in four minutes, 11 minutes ago: four subtasks keep up.
    from_ms = NOW_MS - 1_500_000
    arrived = tuple(
        (from_ms + at_ms, 8e6 * min(1.0, max(0, at_ms - 600_000) / 240_000)) for at_ms in range(0, 1_500_001, 15_000)
    )
    loaded = figures(8, arriving=1_000.0, arrived=arrived)
    wanted = msgspec.structs.replace(LASTED, max_lag_s=60.0)

    def made(restored: int) -> Decision:
        memory = replace(SLACK, parallelism=8, taken_back=min(1, restored), restored=restored)
        return decide(loaded, wanted, memory)

    assert [made(restored).parallelism for restored in (0, 3, 8)] == [1, 3, 4]


def test_a_scale_in_that_proved_right_halves_that_time_again() -> None:
    def after(made: Figures, **memory: Any) -> int:
        return decide(
            made, LASTED, replace(SLACK, taken_back=2, restored=8, **{"shrunk_to": 4} | memory)
        ).memory.taken_back

    falls_on, rises = figures(4, arriving=5_000.0), figures(4, arriving=40_000.0)
    long_ms = NOW_MS - 6 * 4 * 180_000
    assert after(falls_on, shrunk_ms=long_ms) == 1
    # One that soon goes further shows nothing yet.
    assert after(falls_on, shrunk_ms=long_ms + 1) == 2
    assert after(rises, shrunk_ms=long_ms) == 1
    assert after(rises, shrunk_ms=long_ms + 1) == 3
    assert after(falls_on) == after(rises) == 2
    # Nor does one that was partly taken back.
    assert after(falls_on, shrunk_ms=long_ms, shrunk_to=2) == after(rises, shrunk_ms=long_ms, shrunk_to=2) == 2


def test_a_size_that_the_policy_did_not_choose_is_reduced_by_less_than_half_only_after_six_hours() -> None:
    wanted, hour_ms = PolicySettings(max_parallelism=16), 3_600_000
    since = replace(SLACK, parallelism=5, known_since_ms=NOW_MS - 5 * hour_ms, slack_since_ms=0)
    idle = figures(5, arriving=17_000.0)
    waits = decide(idle, wanted, since)
    assert waits.action == "stay" and waits.reason.endswith("18000 s of 21600 s")
    later = replace(since, known_since_ms=NOW_MS - 6 * hour_ms)
    assert decide(idle, wanted, later).parallelism == 3
    # A downtime that makes it wait for 20 minutes does not prolong that.
    assert decide(replace(idle, downtime_ms=60_000), wanted, later).parallelism == 3
    # What was needed in these hours counts.
    needed = decide(idle, wanted, replace(later, needed=((NOW_MS - 2 * hour_ms, 4),)))
    assert needed.action == "stay" and "soon still less will have been enough" in needed.reason
    # Five minutes do for more, and for a size of its own.
    assert decide(replace(idle, arriving=11_000.0), wanted, since).parallelism == 2
    assert decide(idle, wanted, replace(since, chosen=5)).parallelism == 3


def test_a_scale_in_waits_until_it_saves_twenty_times_the_downtime_of_a_rescale() -> None:
    slack = figures(4, arriving=1_000.0, downtime_ms=60_000)
    memory = replace(SLACK, slack_since_ms=NOW_MS - 600_000, known_since_ms=NOW_MS - 600_000, needed=((0, 1),))
    assert decide(slack, LASTED, memory).action == "stay"
    made = decide(replace(slack, downtime_ms=20_000), LASTED, memory)
    assert made.action == "in" and made.reason.endswith("; the rescale stops the job for about 20 s")
