"""Time without output when a stream with a backlog is rescaled, live and by a restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.cluster import PARALLELISM
from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from benchmarks.inputs import Input
from benchmarks.ours import OurJob
from statecore.catalog import EpochRecord

KEYS = 2_000_000
ROWS = 100_000
BEFORE, AFTER = 3, 5
MOST = 2 * PARALLELISM


@dataclass(frozen=True, slots=True)
class Outage:
    """Effect of a rescale on output.

    Attributes:
        gap_s: Seconds from the last output before the rescale to the first after it.
        usual_s: Median seconds between outputs of other epochs.

    """

    gap_s: float
    usual_s: float

    @property
    def stopped_s(self) -> float:
        """Seconds without output beyond the usual interval."""
        return max(self.gap_s - self.usual_s, 0)

    @classmethod
    def of(cls, epochs: list[EpochRecord]) -> Outage:
        """Measure the only change of parallelism in consecutive epochs."""
        published = [(epoch.parallelism, epoch.started_ms + epoch.duration_ms) for epoch in epochs]
        gaps = [(before[0] != after[0], (after[1] - before[1]) / 1000) for before, after in pairwise(published)]
        (gap_s,) = (gap for changed, gap in gaps if changed)
        return cls(gap_s, median(gap for changed, gap in gaps if not changed))


def live(bench: Bench) -> list[Figure]:
    """Measure live rescales and restarts in turns."""
    with bench.workspace("live") as folder:
        bench.say(f"making state of {KEYS:,} keys")
        stream = _Stream(bench, folder)
        outages: list[Outage] = []

        def live_s() -> float:
            outages.append(stream.outage(stream.rescale_live))
            return outages[-1].stopped_s

        try:
            taken = bench.rounds({"live": live_s, "restart": stream.restarted_s}, unit="s without output")
        finally:
            stream.stop()
        gaps = [outage.gap_s for outage in outages]
        usual = [outage.usual_s for outage in outages]
        return [
            Figure("live_vs_restart", median_ratio(taken["live"], taken["restart"]), *map(in_seconds, taken.values())),
            Figure("live_hiccup", median_ratio(gaps, usual), in_seconds(gaps), in_seconds(usual)),
        ]


class _Stream:
    """A job with every key in state, fed while it is rescaled."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench = bench
        self._input = Input(folder / "input")
        self._input.feed_each_key(KEYS)
        self._job = OurJob(bench.spark, folder / "job", self._input.folder)
        self._run = ExitStack()
        self._parallelism = PARALLELISM
        self._forgetting_s = 0.0
        self._start(None)
        self._job.wait_epochs(1)

    def rescale_live(self) -> None:
        """Request a live rescale of the running job."""
        self._job.rescale_live(self._next_parallelism())

    def restarted_s(self) -> float:
        """Return the seconds without output of a restart that loads state from its files."""
        return self.outage(self._restart).stopped_s - self._forgetting_s

    def outage(self, rescale: Callable[[], None]) -> Outage:
        """Rescale to the other parallelism in the middle of a backlog."""
        before = self._job.epochs_done()
        self._input.feed(ROWS, KEYS, files=BEFORE + AFTER)
        self._job.wait_epochs(before + BEFORE)
        rescale()
        fed = BEFORE + AFTER
        self._job.wait_epochs(before + fed)
        # A live rescale is prepared beside the stream: all that was fed may have run before it takes effect.
        while len({epoch.parallelism for epoch in self._job.epochs()[before:]}) == 1:
            self._input.feed(ROWS, KEYS)
            fed += 1
            self._job.wait_epochs(before + fed)
        return Outage.of(self._job.epochs()[before:])

    def stop(self) -> str:
        """Stop with a savepoint; return its path in the store."""
        savepoint = self._job.stop()
        self._run.close()
        return savepoint

    def _restart(self) -> None:
        rescaled = self._job.rescale(self.stop(), self._next_parallelism())
        started = time.monotonic()
        self._bench.forget_state()
        self._forgetting_s = time.monotonic() - started
        self._start(rescaled)

    def _start(self, savepoint: str | None) -> None:
        self._run.enter_context(self._job.running(self._parallelism, start_from=savepoint))

    def _next_parallelism(self) -> int:
        self._parallelism = MOST if self._parallelism == PARALLELISM else PARALLELISM
        return self._parallelism
