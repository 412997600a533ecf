"""A simulated job against a real one: durations of epochs, and the time until a pile is gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.cluster import PARALLELISM, until
from benchmarks.harness import Bench, Figure, in_seconds
from benchmarks.inputs import Input
from benchmarks.ours import OurJob
from benchmarks.simulated import Arrival, Comparison, Epoch, calibrated, simulated_epochs
from statecore.operations.autoscaling.figures import figures_of
from statecore.simulator import World
from statecore.snapshot.settings import DriverSettings

PAUSED_SUM = Path(__file__).parents[1] / "jobs" / "paused_sum.py"
KEYS = 10_000
OTHER_PARALLELISM = 1
_STEP_S, _FILES_A_STEP = 1.0, 4


@dataclass(frozen=True, slots=True)
class Load:
    """What is fed in a round: rows that wait at its start, then rows a second, step by step."""

    pile: int
    steps: Sequence[int] = ()


# Each pile is an epoch, and so the fit gets epochs of several sizes. The JVMs compile during the first ones.
COLD = (500, 500, 500)
CALIBRATION = (4_000, 200, 2_000, 4_000, 200, 1_000, 4_000, 200, 2_000, 4_000)
# On a busy machine the durations scatter, and the fit needs more epochs.
_MOST_CALIBRATIONS = 4
# Two subtasks that pause for 1 ms a row process less than 2,000 rows/s. So a round begins behind, and ends long after
# its last file: the time that it takes is the job's, not that of the feeding.
ROUNDS = (
    Load(5_000, (1_000, 3_000)),
    Load(3_000, (2_000, 500, 1_500)),
    Load(4_000, (500, 2_500, 1_000)),
    Load(2_000, (3_000, 2_000)),
    Load(6_000, (1_000, 500, 2_000)),
)
OTHER_ROUNDS = (Load(2_000, (1_000, 500)), Load(1_000, (500, 1_500)), Load(3_000, (500,)))


def simulation(bench: Bench) -> list[Figure]:
    """Simulate each round by the epochs before it, and compare it with the real one."""
    with bench.workspace("simulation") as folder:
        job = _FedJob(bench, folder)
        with job.ours.running():
            job.calibrate()
            rounds = [job.compared(load, PARALLELISM) for load in ROUNDS]
            job.ours.rescale_live(OTHER_PARALLELISM)
            rescaled = [job.compared(load, OTHER_PARALLELISM) for load in OTHER_ROUNDS]
    return [
        _drain("simulated_drain", rounds),
        _durations("simulated_epochs", rounds),
        _drain("simulated_rescale", rescaled),
    ]


def _drain(name: str, rounds: Sequence[Comparison]) -> Figure:
    simulated, real = ([side[-1].ended_s for side in sides] for sides in _sides(rounds))
    return Figure(name, median(each.drain for each in rounds), in_seconds(simulated), in_seconds(real))


def _durations(name: str, rounds: Sequence[Comparison]) -> Figure:
    simulated, real = ([epoch.duration_s for side in sides for epoch in side] for sides in _sides(rounds))
    ratio = median(duration for each in rounds for duration in each.durations)
    return Figure(name, ratio, in_seconds(simulated), in_seconds(real), f"{len(simulated)} epochs to {len(real)}")


def _sides(rounds: Sequence[Comparison]) -> tuple[list[Sequence[Epoch]], list[Sequence[Epoch]]]:
    return [each.simulated for each in rounds], [each.real for each in rounds]


class _FedJob:
    """A job with a pause for each row, fed at known times."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._say = bench.say
        self._input = Input(folder / "input")
        self.ours = OurJob(bench.spark, folder / "job", self._input.folder, artifact=PAUSED_SUM)
        self._fed = 0

    def calibrate(self) -> None:
        """Feed piles of several sizes until the epochs show what a row costs."""
        for pile in COLD:
            self.feed(Load(pile))
        for _ in range(_MOST_CALIBRATIONS):
            for pile in CALIBRATION:
                self.feed(Load(pile))
            if self._world() is not None:
                break

    def compared(self, load: Load, parallelism: int) -> Comparison:
        """Feed a load, and simulate the same by the epochs at ``PARALLELISM`` before it."""
        world = self._world()
        if world is None:
            raise RuntimeError(
                f"found epochs of {self.ours.name} that do not tell the cost of a row from that of an epoch; expected "
                "durations that follow the rows; run it again when the machine has less other work"
            )
        before = self.ours.epochs_done()
        arrivals, started_s = self.feed(load)
        real = [
            Epoch(each.rows, each.duration_ms / 1000, (each.started_ms + each.duration_ms) / 1000 - started_s)
            for each in self.ours.epochs()[before:]
            if each.rows
        ]
        simulated = simulated_epochs(arrivals, msgspec.structs.replace(world, parallelism=parallelism))
        compared = Comparison(real, simulated)
        costs = (
            f"fixed {world.fixed_ms:.0f} ms, row {world.row_us:.0f} µs, its publishing {world.sink_us_per_row:.0f} µs"
        )
        self._say(f"parallelism {parallelism}: {compared} ({costs})")
        return compared

    def feed(self, load: Load) -> tuple[list[Arrival], float]:
        """Feed a load, wait until all of it is committed, and return what arrived and when the first file did."""
        started_s = due_s = self._arrived_s(load.pile)
        arrivals = [Arrival(0.0, load.pile)]
        for rate in load.steps:
            for _ in range(_FILES_A_STEP):
                due_s += _STEP_S / _FILES_A_STEP
                time.sleep(max(0.0, due_s - time.time()))
                rows = round(rate * _STEP_S / _FILES_A_STEP)
                arrivals.append(Arrival(self._arrived_s(rows) - started_s, rows))
        until(lambda: self._rows_done() == self._fed, f"{self._fed:,} rows of {self.ours.name}", every_s=0.25)
        return arrivals, started_s

    def _world(self) -> World | None:
        figures = figures_of(self.ours.catalog, self.ours.name, int(time.time() * 1000))
        known = [each for each in figures.epochs if each.parallelism == PARALLELISM]
        return calibrated(known[len(COLD) :], PARALLELISM, DriverSettings().trigger_ms)

    def _arrived_s(self, rows: int) -> float:
        """Feed a file; return the time at which it is there."""
        self._input.feed(rows, KEYS)
        self._fed += rows
        return time.time()

    def _rows_done(self) -> int:
        newest = self.ours.catalog.epochs.of(self.ours.name, limit=1)
        return newest[0].rows_total if newest else 0
