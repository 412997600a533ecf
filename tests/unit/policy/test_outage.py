"""The policy in a loop with a simulated job: the outage story, and loads that must not cause many rescales."""

from __future__ import annotations

import math
import random

import pytest

from statecore.simulator import Outcome, Trace, World, player, simulate, simulation

# Simulated days: measuring coverage would take twice as long.
pytestmark = pytest.mark.untraced

MINUTE, HOUR = 60, 3600


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy looks every five seconds; a third of the looks shows the same in a third of the time."""
    monkeypatch.setattr(simulation, "LOOK_S", 15.0)


def play(trace: Trace, **world: object) -> Outcome:
    surroundings = World(**{"min_parallelism": 2, **world})  # type: ignore[arg-type]
    return simulate(trace, surroundings, player("statecore", surroundings))


def sizes(outcome: Outcome) -> list[tuple[int, int]]:
    return [(each.from_, each.to) for each in outcome.decisions]


def test_after_an_outage_of_the_source_the_job_grows_once_drains_in_time_and_goes_back() -> None:
    # Parallelism 2 does 9,000 rows/s; 3,000 arrive. Storage is down for an hour.
    outage_s, pile = HOUR, 6_000.0 * HOUR / 15
    trace = Trace([0, 600, 600 + outage_s, 615 + outage_s, 2.5 * HOUR], [3_000, 0, pile, 3_000])
    played = play(trace, epoch_limit_rows=200_000, worker_start_s=30)
    out, *_, back = played.decisions
    assert (out.from_, back.to) == (2, 2) and len(played.decisions) <= 3, sizes(played)
    assert out.t_s - (600 + outage_s) <= 2 * MINUTE
    drained_s = next(each.t_s for each in played.samples if each.t_s > out.t_s and each.waiting < 20_000)
    assert drained_s - out.t_s <= 700
    assert back.t_s - drained_s >= 550
    assert "rows wait" in out.reason and "rows/s arrive" in out.reason


def test_after_an_outage_of_the_job_workers_come_when_the_epoch_with_all_that_piled_up_is_nearly_done() -> None:
    # That epoch takes an hour's rows, 2,400 s, and a rescale waits for it.
    played = play(Trace([0, 4 * HOUR], [6_000]), outages=((HOUR, 2 * HOUR),), noise=0.0)
    out, *_ = played.decisions
    done_s = next(each.t_s for each in played.samples if each.t_s > out.t_s and each.parallelism == out.to)
    assert out.t_s > 2 * HOUR + 1_200 and 300 < done_s - out.t_s < 900, played.decisions


@pytest.mark.parametrize(("seed", "trigger_ms"), [(0, 500), (1, 10_000)])
def test_a_steady_load_with_noise_is_left_alone(seed: int, trigger_ms: int) -> None:
    noise = random.Random(seed)
    trace = Trace(range(0, HOUR // 2 + 1, 15), [4_500 * noise.uniform(0.7, 1.3) for _ in range(120)])
    assert play(trace, noise=0.25, seed=seed, trigger_ms=trigger_ms).decisions == []


@pytest.mark.parametrize(("begins_with", "load"), [(16, 8_000), (2, 45_000)])
def test_it_converges_to_a_size_that_keeps_up_and_stays_there(begins_with: int, load: float) -> None:
    noise = random.Random(1)
    trace = Trace(range(0, HOUR + 1, 15), [load * noise.uniform(0.8, 1.2) for _ in range(240)])
    played = play(trace, parallelism=begins_with, noise=0.15, epoch_limit_rows=500_000)
    assert len(played.decisions) <= 3, sizes(played)
    assert all(each.t_s < 45 * MINUTE for each in played.decisions)
    # A row costs 0.2 ms of one subtask.
    needed = load / 5_000
    assert min(needed, 16) <= played.end_parallelism <= max(2, needed * 2)
    assert played.samples[-1].waiting < load * 30 or played.end_parallelism == 16


def test_a_day_with_a_peak_takes_few_rescales() -> None:
    # From 2,000 rows/s at night to 30,000 at noon, in two hours.
    day_s = 2 * HOUR
    rates = [16_000 - 14_000 * math.cos(2 * math.pi * at_s / day_s) for at_s in range(0, day_s, 60)]
    played = play(Trace(range(0, day_s + 1, 60), rates), trigger_ms=10_000)
    # Out in the morning and in at night, without reversals in between.
    grows = [to > from_ for from_, to in sizes(played)]
    assert 2 <= len(grows) <= 12 and grows == sorted(grows, reverse=True), sizes(played)
    assert played.largest_lag_s < 120


@pytest.mark.parametrize(
    ("ailment", "world"),
    [
        ("hot_key", {"hot_key_share": 0.6}),
        ("sink_bound", {"sink_us_per_row": 20, "sink_slow": ((600, 9_999, 12),), "parallelism": 3}),
        ("source_bound", {"epoch_limit_rows": 20_000, "fixed_ms": 2_000}),
        ("at_limit", {"max_parallelism": 2}),
    ],
)
def test_where_more_subtasks_do_not_help_the_policy_says_within_five_minutes_what_does_and_stays(
    ailment: str, world: dict[str, object]
) -> None:
    trace = Trace(
        [0, 600, 2_400], [4_000 if ailment == "sink_bound" else 3_000, 12_000 if ailment != "sink_bound" else 4_000]
    )
    played = play(trace, **world)
    assert played.decisions == [], sizes(played)
    # It is the last diagnosis, and not one of many.
    assert len(played.diagnoses) <= 4 and played.diagnoses[-1][1] == ailment, played.diagnoses
    assert played.diagnoses[-1][0] <= 900


def test_piles_that_come_again_get_the_size_that_is_through_in_time() -> None:
    # 1,200,000 rows in 15 s, every 20 minutes: 120 s for two subtasks, where 60 are allowed.
    times = [at_s for pile_s in range(0, 6_000, 1_200) for at_s in (pile_s, pile_s + 15)]
    played = play(Trace([*times, 6_000], [80_000, 500] * 5))
    assert sizes(played) == [(2, 5), (5, 4)], played.decisions
    assert played.slo_minutes < 4


@pytest.mark.nightly
def test_piles_that_are_late_for_a_few_seconds_are_not_worth_half_a_cluster_more() -> None:
    times = [at_s for pile_s in range(0, 12_000, 1_200) for at_s in (pile_s, pile_s + 15)]
    played = play(Trace([*times, 12_000], [60_000, 500] * 10))
    assert sizes(played) == [], played.decisions
    assert 0 < played.slo_minutes < 0.03 * 200


@pytest.mark.nightly
def test_a_load_that_has_fallen_for_good_takes_two_steps_at_most() -> None:
    # From seven tenths of what nine subtasks do to less than one does.
    played = play(
        Trace([0, 2_700, 3 * HOUR], [67_500, 6_205]),
        parallelism=9,
        row_us=100,
        fixed_ms=1_000,
        min_parallelism=1,
    )
    assert 1 <= len(played.decisions) <= 2 and played.end_parallelism == 1, sizes(played)
