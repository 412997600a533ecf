"""Throughput of a running sum per string key, compared with Spark's stateful operators."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks import peers
from benchmarks.epochs import seconds_of
from benchmarks.harness import Bench, Figure, median_ratio
from benchmarks.inputs import Input
from benchmarks.ours import RUNNING_SUM, RUNNING_SUM_BATCH, OurJob, phases

EPOCHS = 4
ROWS = 500_000
KEYS = 200_000
WARM_UP = 1
SLOW_EPOCHS = 2
PEER_TIMEOUT_S = 1500


def against_spark(bench: Bench) -> list[Figure]:
    """Measure record by record against ``groupBy().sum()``."""
    return _against_spark(bench, "record_vs_spark", RUNNING_SUM)


def batch_against_spark(bench: Bench) -> list[Figure]:
    """Measure a batch function against ``groupBy().sum()``; both write one row per key and epoch."""
    return _against_spark(bench, "batch_vs_spark", RUNNING_SUM_BATCH)


def against_tws_row(bench: Bench) -> list[Figure]:
    """Measure against ``transformWithState``, in one round because it is slow."""
    return _against_slow(bench, "record_vs_tws_row", peers.tws_row)


def against_tws_pandas(bench: Bench) -> list[Figure]:
    """Measure against ``transformWithStateInPandas``, in one round because it is slow."""
    return _against_slow(bench, "record_vs_tws_pandas", peers.tws_pandas)


def _against_spark(bench: Bench, name: str, artifact: Path) -> list[Figure]:
    with bench.workspace(name) as folder:
        sides = _Sides(bench, folder, WARM_UP + EPOCHS)
        both = {"ours": lambda: sides.ours(artifact), "Spark": lambda: sides.peer(peers.grouped_sum)}
        taken = bench.rounds(both, unit="rows/s")
        ratio = median_ratio(taken["ours"], taken["Spark"])
        return [Figure(name, ratio, _rate(taken["ours"]), _rate(taken["Spark"]), sides.note)]


def _against_slow(bench: Bench, name: str, operator: peers.Operator) -> list[Figure]:
    with bench.workspace(name) as folder:
        sides = _Sides(bench, folder, SLOW_EPOCHS)
        both = {"ours": lambda: sides.ours(RUNNING_SUM), "peer": lambda: sides.peer(operator)}
        taken = bench.rounds(both, unit="rows/s", rounds=1, warm_up=0)
        ratio = median_ratio(taken["ours"], taken["peer"])
        return [Figure(name, ratio, _rate(taken["ours"]), _rate(taken["peer"]), "the second of two epochs")]


class _Sides:
    """Runs each side over the same epochs; the first is a warm-up and does not count."""

    def __init__(self, bench: Bench, folder: Path, epochs: int) -> None:
        self._bench, self._folder, self._epochs = bench, folder, epochs
        self._records = Input(folder / "input")
        self._records.feed(ROWS, KEYS, files=epochs)
        self._runs = 0
        self.note = ""

    def ours(self, artifact: Path) -> float:
        """Return our rows per second."""
        job = OurJob(self._bench.spark, self._next("ours"), self._records.folder, artifact=artifact)
        with job.running() as query:
            seconds = seconds_of(query, self._epochs)
        self.note = f"last round, {phases(job.epochs()[WARM_UP:])}"
        job.close()
        self._bench.forget_state()
        return self._rate(seconds)

    def peer(self, operator: peers.Operator) -> float:
        """Return the rows per second of a Spark query."""
        spark = peers.peer_session(self._bench.spark)
        with peers.running(spark, operator, self._records.folder, self._next("peer")) as query:
            return self._rate(seconds_of(query, self._epochs, timeout_s=PEER_TIMEOUT_S))

    def _next(self, side: str) -> Path:
        self._runs += 1
        return self._folder / f"{side}-{self._runs}"

    def _rate(self, seconds: list[float]) -> float:
        measured = seconds[WARM_UP:]
        return ROWS * len(measured) / sum(measured)


def _rate(rates: list[float]) -> str:
    return f"{median(rates):,.0f} rows/s"
