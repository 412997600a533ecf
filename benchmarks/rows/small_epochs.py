"""Duration of an epoch with few rows, compared with Spark's aggregate: what an epoch costs before its first row."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from pyspark.sql.streaming import StreamingQuery

from benchmarks import peers
from benchmarks.epochs import parts_of, seconds_of
from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from benchmarks.inputs import Input
from benchmarks.ours import OurJob

ROWS = 1_000
KEYS = 100_000
WARM_UP = 4
EPOCHS = 12


def against_spark(bench: Bench) -> list[Figure]:
    """Measure record by record against ``groupBy().sum()``."""
    with bench.workspace("small_epoch") as folder:
        sides = _Sides(bench, folder)
        taken = bench.rounds({"ours": sides.ours, "Spark": sides.peer}, unit="s an epoch")
        ratio = median_ratio(taken["ours"], taken["Spark"])
        note = "\n".join(f"last round, {side}: {parts}" for side, parts in sides.parts.items())
        return [Figure("small_epoch_vs_spark", ratio, in_seconds(taken["ours"]), in_seconds(taken["Spark"]), note)]


class _Sides:
    """Runs each side over the same epochs; the first has each key once, and counts as little as those of the warm-up.

    Attributes:
        parts: Where Spark's clock says that each side's epochs spent their time.

    """

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench, self._folder = bench, folder
        self._records = Input(folder / "input")
        self._records.feed_each_key(KEYS)
        self._records.feed(ROWS, KEYS, files=WARM_UP + EPOCHS)
        self._runs = 0
        self.parts: dict[str, str] = {}

    def ours(self) -> float:
        """Return the median seconds of our epochs."""
        job = OurJob(self._bench.spark, self._next("ours"), self._records.folder)
        with job.running() as query:
            seconds = self._seconds("ours", query)
        # First, because a worker may still write files.
        self._bench.forget_state()
        job.close()
        return seconds

    def peer(self) -> float:
        """Return the median seconds of the epochs of a Spark query."""
        spark = peers.peer_session(self._bench.spark)
        with peers.running(spark, peers.grouped_sum, self._records.folder, self._next("peer")) as query:
            return self._seconds("Spark", query)

    def _seconds(self, side: str, query: StreamingQuery) -> float:
        seconds = seconds_of(query, self._records.files)[-EPOCHS:]
        self.parts[side] = parts_of(query, EPOCHS)
        return median(seconds)

    def _next(self, side: str) -> Path:
        self._runs += 1
        return self._folder / f"{side}-{self._runs}"
