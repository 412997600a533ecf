"""The simulation: what epochs and rescales take, and how it is counted; every figure here is computed by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from statecore.simulator import Answer, Outcome, Trace, World, player, simulate
from statecore.simulator.job import SimulatedJob

QUIET = {"noise": 0.0, "fixed_ms": 100.0, "row_us": 1_000.0, "parallelism": 1, "trigger_ms": 1.0}


@dataclass
class Asks:
    """Asks for sizes at times, and keeps what it saw."""

    at: dict[float, int]
    seen: list[tuple[float, int, int]] = field(default_factory=list)
    last: SimulatedJob | None = None

    def starts_with(self, world: World) -> int:
        return world.parallelism

    def look(self, job: SimulatedJob) -> Answer:
        self.seen.append((job.now_s, job.parallelism, job.workers))
        self.last = job
        return Answer(self.at.get(job.now_s), "asked", "healthy")


def play(trace: Trace, asks: Asks | None = None, **world: object) -> tuple[Outcome, SimulatedJob]:
    asks = asks or Asks({})
    outcome = simulate(trace, World(**{**QUIET, **world}), asks)  # type: ignore[arg-type]
    assert asks.last is not None
    return outcome, asks.last


def test_an_epoch_takes_what_its_phases_take() -> None:
    # 1,000 rows come within the first millisecond, then nothing.
    trace = Trace([0, 0.001, 20], [1_000_000, 0])
    _, job = play(trace, hot_key_share=0.5, parallelism=4, sink_us_per_row=200, sink_slow=((0, 9, 3),))
    first, second = job.epochs[:2]
    rows = second.rows
    assert first.rows <= 2 and rows == 1_000 - first.rows
    assert second.work_ms == pytest.approx(rows * 0.5) and second.publish_ms == pytest.approx(rows * 0.2 * 3)
    assert second.duration_ms == pytest.approx(100 + rows * 0.5 + rows * 0.6)
    assert job.committed == 1000 and len(job.epochs) == 2


def test_an_epoch_takes_no_more_than_its_limit_and_begins_no_sooner_than_the_trigger() -> None:
    trace = Trace([0, 1, 20], [1_000, 0])
    _, job = play(trace, epoch_limit_rows=300, trigger_ms=2_000)
    assert [each.rows for each in job.epochs] == [1, 300, 300, 300, 99]
    assert [each.started_s for each in job.epochs[1:]] == pytest.approx([2, 4, 6, 8], abs=0.01)
    assert [each.waiting for each in job.epochs[1:]] == [699, 399, 99, 0]


def test_without_a_trigger_epochs_run_back_to_back() -> None:
    _, job = play(Trace([0, 20], [100]), trigger_ms=0)
    starts = [each.started_s for each in job.epochs[1:]]
    assert starts == pytest.approx([each.ended_s for each in job.epochs[:-1]], abs=0.001) and len(starts) > 100


def test_an_epoch_that_costs_nothing_takes_a_millisecond() -> None:
    outcome, job = play(Trace([0, 10], [100]), trigger_ms=0, fixed_ms=0, row_us=0)
    assert {round(each.duration_ms, 6) for each in job.epochs} == {1}
    assert job.committed == pytest.approx(1_000, abs=1) and outcome.largest_lag_s < 0.02


@pytest.mark.parametrize("began_s", [-30.0, 1_000.0, 1_700_000_000.0])
def test_the_world_and_the_answer_are_by_the_clock_of_the_trace(began_s: float) -> None:
    def told(began_s: float) -> tuple[Outcome, SimulatedJob]:
        outages = ((began_s - 9, began_s - 5), (began_s - 5, began_s + 10), (began_s + 40, began_s + 60))
        slow = ((began_s - 5, began_s + 20, 4), (began_s + 100, began_s + 120, 9))
        asks = Asks({30.0: 4, 150.0: 2})
        trace = Trace([0, 100, 200], [100, 50], began_s)
        return play(trace, asks, outages=outages, sink_slow=slow, sink_us_per_row=500, noise=0.3, slo_s=5)

    (expected, before), (found, job) = told(0), told(began_s)
    assert job.epochs == before.epochs and len(job.epochs) > 50
    assert job.epochs[0].publish_ms > 1.4 * job.epochs[0].rows
    for name in ("slo_minutes", "core_hours", "largest_lag_s", "end_parallelism"):
        assert getattr(found, name) == getattr(expected, name)
    assert [(each.t_s, each.to) for each in found.decisions] == [(began_s + 30, 4), (began_s + 150, 2)]
    assert found.diagnoses == [(began_s + 5, "healthy")] and found.samples[0].t_s == began_s + 5


def test_noise_is_that_of_the_seed() -> None:
    trace = Trace([0, 60], [100])
    ends = [play(trace, noise=0.3, seed=seed)[1].epochs[-1].ended_s for seed in (1, 1, 2)]
    assert ends[0] == ends[1] != ends[2]


def test_rows_are_late_from_when_the_oldest_is_too_old_until_it_is_committed() -> None:
    # 30,000 rows at once take 30.1 s; 10 s are allowed.
    outcome, _ = play(Trace([0, 0.001, 120], [30_000_000, 0]), slo_s=10)
    assert outcome.slo_minutes * 60 == pytest.approx(30.2 - 10, abs=0.02)
    assert outcome.largest_lag_s == pytest.approx(30.2, abs=0.02)


def test_rows_that_are_still_waiting_at_the_end_count() -> None:
    outcome, job = play(Trace([0, 0.001, 60], [10**9, 0]), slo_s=10)
    assert outcome.slo_minutes * 60 == pytest.approx(50, abs=0.2) and job.committed < 2_000


def test_a_part_of_a_row_is_no_row_that_waits() -> None:
    outcome, job = play(Trace([0, 5, 600], [100.1, 0]), slo_s=10)
    assert (job.committed, outcome.slo_minutes, job.lag_s) == (500, 0, 0)


def test_a_rescale_waits_for_its_workers_and_then_processes_nothing_for_a_while() -> None:
    asks = Asks({50.0: 4, 100.0: 2})
    outcome, job = play(Trace([0, 200], [100]), asks, worker_start_s=10, rescale_s=5, subtasks_per_worker=2)
    # Out: it goes on for 10 s until the workers are there. In: the workers go at the end.
    assert [(each.t_s, each.from_, each.to) for each in outcome.decisions] == [(50, 1, 4), (100, 4, 2)]
    assert {size for at_s, size, _ in asks.seen if at_s <= 65} == {1}
    assert {size for at_s, size, _ in asks.seen if 70 <= at_s <= 105} == {4}
    assert [workers for at_s, _, workers in asks.seen if at_s in (50, 55, 105, 110)] == [1, 2, 2, 1]
    ran = [each for each in job.epochs if each.ended_s > 60 and each.started_s < 65]
    assert ran[0].started_s <= 60 and ran[-1].ended_s - 60 < 0.5
    core_s = 2 * (50 + 55 * 2 + 95)
    assert outcome.core_hours == pytest.approx(core_s / 3600, abs=0.001)
    assert (outcome.rescales, outcome.end_parallelism) == (2, 2)


def test_a_policy_gets_no_size_beyond_the_limits_and_none_while_a_rescale_is_under_way() -> None:
    outcome, _ = play(Trace([0, 60], [1]), Asks({10.0: 99, 15.0: 3, 20.0: 0}), rescale_s=30, max_parallelism=8)
    assert [(each.t_s, each.to) for each in outcome.decisions] == [(10, 8)]


def test_in_an_outage_rows_pile_up_and_the_running_epoch_is_lost() -> None:
    outcome, job = play(Trace([0, 100], [100]), outages=((20, 50),), slo_s=1_000, fixed_ms=5_000)
    assert not [each for each in job.epochs if each.started_s < 20 and each.ended_s > 20]
    first = next(each for each in job.epochs if each.started_s >= 50)
    assert first.rows == pytest.approx(100 * (50 - [e for e in job.epochs if e.ended_s <= 20][-1].started_s), abs=2)
    assert outcome.largest_lag_s == pytest.approx(first.ended_s - 20 + 20 % 5.5, abs=6)


def test_the_answer_in_json_names_what_the_issue_of_a_policy_is() -> None:
    outcome, _ = play(Trace([0, 60], [100]), Asks({10.0: 2}))
    told = json.loads(json.dumps(outcome.to_json()))
    assert list(told) == [
        "slo_minutes",
        "core_hours",
        "rescales",
        "largest_lag_s",
        "end_parallelism",
        "diagnoses",
        "decisions",
    ]
    assert told["diagnoses"] == [[5.0, "healthy"]]
    assert told["decisions"] == [{"t_s": 10.0, "from": 1, "to": 2, "reason": "asked"}]


def test_a_fixed_size_stays() -> None:
    world = World(parallelism=2)
    outcome = simulate(Trace([0, 3600], [100]), world, player("fixed:5", world))
    assert (outcome.end_parallelism, outcome.rescales) == (5, 0)
    assert outcome.core_hours == pytest.approx(5)


def test_a_row_that_arrives_alone_is_processed() -> None:
    alone = Trace((0, 100, 101, 300), (0, 1, 0))
    made = simulate(alone, World(parallelism=1, fixed_ms=1_000, noise=0), player("fixed:1", World()))
    assert made.largest_lag_s == pytest.approx(1.0, abs=0.01)
