"""Jobs that no size helps, small ones too; and bursts that are over before a rescale is."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from statecore.simulator import Outcome, Trace, World, player, simulate, simulation

# Simulated days: measuring coverage would take twice as long.
pytestmark = pytest.mark.untraced

HOUR = 3600.0


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy looks every five seconds; a third of the looks shows the same in a third of the time."""
    monkeypatch.setattr(simulation, "LOOK_S", 15.0)


def play(trace: Trace, world: World) -> Outcome:
    return simulate(trace, world, player("statecore", world))


def sizes(outcome: Outcome) -> list[tuple[int, int]]:
    return [(each.from_, each.to) for each in outcome.decisions]


def diagnosed_after_s(played: Outcome, name: str, began_s: float) -> float:
    return next((at_s for at_s, each in played.diagnoses if each == name and at_s >= began_s), math.inf) - began_s


@pytest.mark.nightly
def test_a_job_at_parallelism_1_whose_source_limits_it_stays() -> None:
    # An epoch of 7,500 rows has 2 s that no size shortens: more than 3,750 rows/s it never does.
    world = World(parallelism=1, fixed_ms=2_000, row_us=400, epoch_limit_rows=7_500)
    played = play(Trace([0, HOUR, 4 * HOUR], [1_000, 4_100]), world)
    assert [each for each in played.decisions if each.t_s >= HOUR] == []
    assert diagnosed_after_s(played, "source_bound", HOUR) <= 300


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize(("parallelism", "began_s", "usual", "load"), [(2, 0, 9_400, 9_400), (4, HOUR, 3_000, 9_500)])
def test_a_job_whose_source_limits_it_stays_however_much_waits_and_learns_which_limit_would_do(
    parallelism: int, began_s: float, usual: float, load: float
) -> None:
    # No size does more than 10,000 rows/s with these epochs. Soon no limit would drain what waits in time.
    world = World(parallelism=parallelism, fixed_ms=2_000, epoch_limit_rows=20_000)
    played = play(Trace([0, HOUR, 3.5 * HOUR], [usual, load]), world)
    assert [each for each in played.decisions if each.t_s >= began_s] == []
    assert diagnosed_after_s(played, "source_bound", began_s) <= 300 and played.diagnoses[-1][1] == "source_bound"


@pytest.mark.nightly
def test_a_job_whose_trigger_keeps_limited_epochs_apart_stays() -> None:
    # From parallelism 4 on, an epoch of 24,000 rows is over before the next may begin: 12,000 rows/s are the most.
    world = World(parallelism=3, fixed_ms=500, trigger_ms=2_000, epoch_limit_rows=24_000)
    played = play(Trace([0, 1_800, 2 * HOUR], [6_000, 14_000]), world)
    assert played.decisions == [] and diagnosed_after_s(played, "source_bound", 1_800) <= 300


def test_a_scale_in_that_a_trigger_makes_fall_behind_is_taken_back() -> None:
    # Just what arrives is what the limit lets through every 5 s; at parallelism 2 an epoch takes longer.
    limited = World(fixed_ms=2_000, trigger_ms=5_000, epoch_limit_rows=16_090, noise=0.02, rescale_s=10)
    world = msgspec.structs.replace(limited, parallelism=4, subtasks_per_worker=2, row_us=400)
    played = play(Trace([0, HOUR], [3_217.0]), world)
    assert sizes(played) == [(4, 2), (2, 4)] and "so the scale-in is taken back" in played.decisions[1].reason
    assert played.slo_minutes == 0


@pytest.mark.nightly
@pytest.mark.parametrize(("begins_with", "load", "within_s"), [(6, 20_000, 120), (8, 30_000, 120)])
def test_a_job_that_was_idle_at_its_size_is_judged_by_what_it_did_at_another(
    begins_with: int, load: float, within_s: float
) -> None:
    # It has no epoch at parallelism 1 when the load comes back; each takes several times as long as the one before.
    played = play(Trace([0, 1_800, 3 * HOUR, 4 * HOUR], [load, 0, load]), World(parallelism=begins_with))
    gone, back = played.decisions[:2]
    assert gone.to == 1 and back.to > begins_with and back.t_s - 3 * HOUR <= within_s, played.decisions
    assert back.reason.startswith(f"by what parallelism {begins_with} did, ")
    assert "source_bound" not in [name for _, name in played.diagnoses]


@pytest.mark.nightly
def test_a_job_that_was_idle_at_its_size_stays_there_while_it_does_enough() -> None:
    played = play(Trace([0, 1_800, 3 * HOUR, 3.5 * HOUR], [20_000, 0, 3_000]), World(parallelism=6))
    assert sizes(played) == [(6, 1)]


@pytest.mark.nightly
def test_a_hot_key_is_known_where_epochs_have_become_long() -> None:
    world = World(parallelism=3, hot_key_share=0.4)
    played = play(Trace([0, HOUR, 2 * HOUR], [3_000, 15_000]), world)
    assert [each for each in sizes(played) if each[1] > 2] == []
    # From when the job runs at parallelism 2, of which it has no epoch yet.
    (grown,) = [each for each in played.decisions if each.t_s >= HOUR]
    assert diagnosed_after_s(played, "hot_key", grown.t_s) <= 300


@pytest.mark.nightly
def test_a_spike_that_an_epoch_under_way_has_nearly_done_is_left_alone() -> None:
    # 3,000,000 rows in 30 s: soon one epoch has most of them.
    trace = Trace([0, HOUR, HOUR + 30, 2 * HOUR], [5_000, 100_000, 5_000])
    assert play(trace, World()).decisions == []


@pytest.mark.nightly
@pytest.mark.usefixtures("rare_looks")
def test_a_load_that_comes_and_goes_slowly_is_followed() -> None:
    # 3,000 to 21,000 rows/s and back every two hours.
    rates = [12_000 - 9_000 * math.cos(2 * math.pi * at_s / (2 * HOUR)) for at_s in range(0, 6 * 3_600, 60)]
    played = play(Trace(range(0, 6 * 3_600 + 1, 60), rates), World(parallelism=1))
    smallest = min(each.to for each in played.decisions if each.t_s > HOUR)
    assert smallest <= 3 and played.slo_minutes == 0
    assert played.core_hours <= 0.8 * 6 * max(each.to for each in played.decisions)


@pytest.mark.nightly
@pytest.mark.usefixtures("rare_looks")
def test_a_load_that_comes_and_goes_within_minutes_is_not_followed() -> None:
    trace = Trace(range(0, 6 * 3_600 + 1, 600), [18_000.0 if part % 2 else 9_000.0 for part in range(36)])
    assert len(play(trace, World(parallelism=4)).decisions) <= 4


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize(("partitions", "load"), [(4, 30_000), (3, 13_000)])
def test_a_job_grows_no_further_than_its_source_has_partitions(partitions: int, load: float) -> None:
    played = play(Trace([0, 600, 5_400], [5_000, load]), World(source_partitions=partitions))
    assert sizes(played) == [(2, partitions)], played.decisions


@pytest.mark.usefixtures("rare_looks")
def test_a_job_far_too_small_is_seen_by_its_first_three_epochs() -> None:
    # Each epoch takes six times as long as the one before.
    played = play(Trace([0, 1_200], [30_000]), World(parallelism=1))
    assert played.decisions and played.decisions[0].t_s <= 900, played.decisions


@pytest.mark.usefixtures("rare_looks")
def test_rows_that_come_in_clumps_need_no_more_than_the_size_that_would_have_done_them_in_time() -> None:
    # 7,000 rows/s on average, in spans of 15 s with 0, 8,000 or 16,000: their median says little.
    clumps = random.Random(4)
    rates = [8_000.0 * (clumps.random() < 0.5) + 8_000 * (clumps.random() < 0.375) for _ in range(240)]
    played = play(Trace(range(0, 3_601, 15), rates), World(parallelism=4))
    assert sizes(played) == [(4, 2)] and played.slo_minutes < 1, played.decisions


def test_a_job_with_much_work_whose_sink_alone_takes_too_long_stays() -> None:
    # 190 µs a row in the sink, where 6,500 rows/s leave 154; and 200 µs of work at two subtasks.
    world = World(fixed_ms=600, row_us=400, sink_us_per_row=190, trigger_ms=2_000, noise=0.1)
    played = play(Trace([0, HOUR], [6_500]), world)
    assert sizes(played) == []
    assert diagnosed_after_s(played, "sink_bound", 0) <= 300


def test_a_sink_that_turns_slow_is_known_by_the_first_two_long_epochs() -> None:
    # An epoch of a minute comes first, one of two follows: by then a policy that waits for more had rescaled.
    world = World(
        parallelism=5, fixed_ms=600, row_us=100, sink_us_per_row=3, trigger_ms=2_000, sink_slow=((1_800, 5_400, 15),)
    )
    played = play(Trace([0, 5_000], [32_700]), world)
    assert sizes(played) == []
    assert diagnosed_after_s(played, "sink_bound", 1_800) <= 150


@pytest.mark.nightly
def test_workers_that_start_slowly_are_not_asked_for_to_drain_what_is_gone_before_they_come() -> None:
    # Four subtasks drain what piled up while their workers started, in less time than a fifth would take to come.
    # A rescale that stopped the job would be another reason for a larger size.
    world = World(parallelism=1, max_parallelism=32, fixed_ms=150, rescale_s=0, worker_start_s=900, seed=89)
    played = play(Trace([0, HOUR, 3 * HOUR], [1_810, 12_873]), world)
    assert sizes(played) == [(1, 4)]


def test_a_key_that_cannot_be_divided_is_named_where_twice_the_subtasks_would_help_a_little() -> None:
    # Two subtasks do a third more than one, and no number of them as much as arrives.
    world = World(parallelism=1, hot_key_share=0.75)
    played = play(Trace([0, 1800, 1.5 * HOUR], [3_000, 7_500]), world)
    assert sizes(played) == []
    assert diagnosed_after_s(played, "hot_key", 1800) <= 300


@pytest.mark.nightly
def test_a_spike_of_several_times_the_load_for_90_seconds_moves_nothing() -> None:
    world = World(
        parallelism=4, min_parallelism=4, max_parallelism=32, fixed_ms=1_000, row_us=100, trigger_ms=5_000, noise=0.02
    )
    times = [0, *(at_s for again in range(1, 4) for at_s in (again * 5_400, again * 5_400 + 90)), 18_000]
    played = play(Trace(times, [20_000, *(80_000, 20_000) * 3]), world)
    assert sizes(played) == []


@pytest.mark.nightly
def test_a_job_with_a_hot_key_grows_as_far_as_the_key_divides_though_more_arrives() -> None:
    # One key has a quarter of the rows: four subtasks do four times as much, and no number of them does more.
    played = play(Trace([0, 1800, 2 * HOUR], [3_000, 30_000]), World(parallelism=1, hot_key_share=0.25))
    (only,) = sizes(played)
    assert only[0] == 1 and 4 <= only[1] <= 5
    assert played.diagnoses[-1][1] == "hot_key"


def test_a_scale_in_that_is_the_first_to_meet_the_sources_limit_is_taken_back_and_not_tried_again() -> None:
    # At parallelism 11 an epoch has about 11,000 rows; at 2, one of 20,000 takes as long as they take to arrive.
    world = World(parallelism=11, fixed_ms=2_000, epoch_limit_rows=20_000)
    played = play(Trace([0, HOUR], [5_000]), world)
    (first, to), (back, last) = sizes(played)
    assert (first, to, back) == (11, 2, 2) and 2 < last <= 11
    assert played.slo_minutes == 0
    assert "the source limits an epoch to 20,000 rows" in played.decisions[1].reason
    assert "so the scale-in is taken back" in played.decisions[1].reason
