"""The comparison of a simulated job with a real one, on epochs that a formula gives."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.simulated import Arrival, Comparison, Epoch, calibrated, simulated_epochs
from benchmarks.targets import TARGETS
from statecore.policy import EpochCost
from statecore.simulator import World

FIXED_MS, ROW_MS = 600.0, 0.5
ARRIVALS = [Arrival(0.0, 3_000), *(Arrival(0.25 * step, 400) for step in range(1, 9))]
SIZES = (3_000, 200, 1_500, 3_000, 800, 200, 3_000, 1_500)


def _cost(number: int, rows: int) -> EpochCost:
    # Of a row at parallelism 2, a tenth is publishing, which more subtasks do not divide.
    duration_ms = FIXED_MS + ROW_MS * rows
    return EpochCost(
        1_000 * number,
        2,
        rows,
        round(duration_ms),
        0.1 * FIXED_MS,
        0.8 * FIXED_MS + 0.9 * ROW_MS * rows,
        0.1 * ROW_MS * rows,
    )


def _job(row_factor: float = 1.0) -> list[Epoch]:
    """Run a job by the formula: an epoch takes all rows that wait when it begins."""
    epochs: list[Epoch] = []
    now_s, done = 0.0, 0
    while done < sum(each.rows for each in ARRIVALS):
        rows = sum(each.rows for each in ARRIVALS if each.at_s <= now_s) - done
        duration_s = (FIXED_MS + row_factor * ROW_MS * rows) / 1000
        now_s, done = now_s + duration_s, done + rows
        epochs.append(Epoch(rows, duration_s, now_s))
    return epochs


def test_a_world_has_the_costs_that_the_epochs_show_and_those_of_a_row_at_parallelism_1() -> None:
    world = calibrated([_cost(number, rows) for number, rows in enumerate(SIZES)], 2, 500)
    assert world is not None
    assert world.fixed_ms == pytest.approx(FIXED_MS, rel=0.01)
    assert world.row_us == pytest.approx(2 * 0.9 * ROW_MS * 1000, rel=0.01)
    assert world.sink_us_per_row == pytest.approx(0.1 * ROW_MS * 1000, rel=0.01)
    assert (world.parallelism, world.trigger_ms) == (2, 500)


def test_epochs_of_one_size_give_no_world_because_they_show_no_cost_of_a_row() -> None:
    assert calibrated([_cost(number, 1_000) for number in range(8)], 2, 500) is None


def test_a_simulated_job_has_the_epochs_of_one_whose_costs_were_calibrated() -> None:
    world = calibrated([_cost(number, rows) for number, rows in enumerate(SIZES)], 2, 500)
    assert world is not None
    real, simulated = _job(), simulated_epochs(ARRIVALS, world)
    assert [each.rows for each in simulated] == [each.rows for each in real]
    compared = Comparison(real, simulated)
    assert compared.drain == pytest.approx(1, abs=0.01)
    assert compared.durations == pytest.approx([1] * len(real), abs=0.01)


def test_a_file_arrives_at_once_and_an_idle_job_waits_for_it() -> None:
    world = World(parallelism=2, fixed_ms=100, row_us=2_000, trigger_ms=500, noise=0)
    simulated = simulated_epochs([Arrival(0.0, 997), Arrival(7.3, 2), Arrival(7.4, 3)], world)
    assert [each.rows for each in simulated] == [997, 2, 3]
    assert [each.ended_s for each in simulated] == pytest.approx([1.097, 7.402, 7.903], abs=1e-4)


@pytest.mark.parametrize("row_factor", [0.5, 2.0])
def test_rows_that_cost_twice_as_much_in_one_of_the_runs_miss_both_targets(row_factor: float) -> None:
    compared = Comparison(_job(row_factor), _job())
    assert not TARGETS["simulated_drain"].met(compared.drain)
    assert not TARGETS["simulated_epochs"].met(median(compared.durations))


def test_an_epoch_more_in_one_run_leaves_the_other_pairs_as_they_are() -> None:
    real = [Epoch(10, 1.0, 1.0), Epoch(90, 4.0, 5.0), Epoch(100, 5.0, 10.0)]
    simulated = [Epoch(100, 5.0, 5.0), Epoch(100, 5.0, 10.0)]
    assert Comparison(real, simulated).drain == 1
    assert Comparison(real, simulated).durations == [5, 1.25, 1]
