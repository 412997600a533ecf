"""Costs that must not grow with the state: an epoch, and a stop with a rescale by reference."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from benchmarks.cluster import PARALLELISM
from benchmarks.epochs import seconds_of
from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from benchmarks.inputs import Input
from benchmarks.ours import OurJob, phases, written_savepoint

SAVEPOINT_KEYS, EPOCH_KEYS, MANY_KEYS = 50_000, 100_000, 5_000_000
ROWS = 10_000
WARM_UP = 3
EPOCHS = 9


def growth(bench: Bench) -> list[Figure]:
    """Measure both rows on the same large state."""
    with bench.workspace("growth") as folder:
        many = _Job(bench, folder, MANY_KEYS)
        figures = []
        if bench.wants("savepoint_growth"):
            figures.append(_savepoint_growth(bench, _Job(bench, folder, SAVEPOINT_KEYS), many))
        if bench.wants("epoch_growth"):
            figures.append(_epoch_growth(bench, _Job(bench, folder, EPOCH_KEYS), many))
        return figures


def _savepoint_growth(bench: Bench, few: _Job, many: _Job) -> Figure:
    """Measure from the stop request to the rescaled manifest."""
    taken = bench.rounds({few.name: few.stop_s, many.name: many.stop_s}, unit="s to stop and rescale")
    ratio = median_ratio(taken[many.name], taken[few.name])
    return Figure("savepoint_growth", ratio, in_seconds(taken[many.name]), in_seconds(taken[few.name]))


def _epoch_growth(bench: Bench, few: _Job, many: _Job) -> Figure:
    """Measure the median epoch."""
    taken = bench.rounds({few.name: few.epoch_s, many.name: many.epoch_s}, unit="s an epoch")
    ratio = median_ratio(taken[many.name], taken[few.name])
    note = f"{few.name}: {few.note}\n{many.name}: {many.note}"
    return Figure("epoch_growth", ratio, in_seconds(taken[many.name]), in_seconds(taken[few.name]), note)


class _Job:
    """A job that starts with a number of keys."""

    def __init__(self, bench: Bench, folder: Path, keys: int) -> None:
        self._bench, self._keys = bench, keys
        self.name = f"{keys:,} keys"
        self.note = ""
        self._input = Input(folder / f"input-{keys}")
        self._stops = 0
        bench.say(f"making state of {self.name}")
        savepoint = written_savepoint(bench.spark, folder / f"savepoint-{keys}", keys)
        self._job = OurJob(bench.spark, folder / f"job-{keys}", self._input.folder, start_from=savepoint)

    def epoch_s(self) -> float:
        """Return the median seconds of an epoch with the state in memory."""
        self._input.feed(ROWS, self._keys, files=WARM_UP + EPOCHS)
        with self._job.running() as query:
            seconds = seconds_of(query, WARM_UP + EPOCHS)
        measured = self._job.epochs()[-EPOCHS:]
        hits = sum(epoch.cache_hits for epoch in measured) / sum(epoch.subtasks for epoch in measured)
        self.note = f"state in memory {hits:.0%}, {phases(measured)}"
        self._bench.forget_state()
        return median(seconds[WARM_UP:])

    def stop_s(self) -> float:
        """Return the seconds of a stop with a savepoint and a rescale by reference."""
        self._input.feed(ROWS, self._keys)
        with self._job.running() as query:
            seconds_of(query, 1)
            # A driver polls requests with each heartbeat: start right after one, for the same wait in all rounds.
            self._job.wait_heartbeat()
            started = time.monotonic()
            self._job.rescale(self._job.stop(), 2 * PARALLELISM)
            return time.monotonic() - started
