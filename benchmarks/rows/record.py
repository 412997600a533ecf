"""Throughput of a running sum per string key, compared with Spark's stateful operators."""

from __future__ import annotations

from pathlib import Path

from benchmarks import peers
from benchmarks.harness import Bench, Figure, median_ratio
from benchmarks.inputs import Input
from benchmarks.ours import RUNNING_SUM, RUNNING_SUM_BATCH
from benchmarks.rows.throughput import EPOCHS, FEWER_ROWS, KEYS, ROWS, WARM_UP, Sides, rate

SLOW_EPOCHS, SLOW_PART = 2, 5
"""An operator that crosses a socket per call takes minutes. So both sides get two epochs, and the operator a fifth of
the rows and of the keys: as many rows a key, which its cost of a row depends on.
"""


def against_spark(bench: Bench) -> list[Figure]:
    """Measure record by record against ``groupBy().sum()``."""
    return _against_spark(bench, "record_vs_spark", RUNNING_SUM)


def batch_against_spark(bench: Bench) -> list[Figure]:
    """Measure a batch function against ``groupBy().sum()``; both write one row per key and epoch."""
    return _against_spark(bench, "batch_vs_spark", RUNNING_SUM_BATCH)


def against_tws_row(bench: Bench) -> list[Figure]:
    """Measure against ``transformWithState``."""
    return _against_slow(bench, "record_vs_tws_row", peers.tws_row)


def against_tws_pandas(bench: Bench) -> list[Figure]:
    """Measure against ``transformWithStateInPandas``."""
    return _against_slow(bench, "record_vs_tws_pandas", peers.tws_pandas)


def _against_spark(bench: Bench, name: str, artifact: Path) -> list[Figure]:
    with bench.workspace(name) as folder:
        sides = Sides(bench, folder, _records(folder, ROWS, WARM_UP + EPOCHS))
        both = {"ours": lambda: sides.ours(artifact), "Spark": lambda: sides.peer(peers.grouped_sum)}
        taken = bench.rounds(both, unit="rows/s")
        ratio = median_ratio(taken["ours"], taken["Spark"])
        return [Figure(name, ratio, rate(taken["ours"]), rate(taken["Spark"]), sides.note)]


def _against_slow(bench: Bench, name: str, operator: peers.Operator) -> list[Figure]:
    with bench.workspace(name) as folder:
        whole = Sides(bench, folder, _records(folder, FEWER_ROWS, SLOW_EPOCHS), FEWER_ROWS)
        few = FEWER_ROWS // SLOW_PART
        part = Sides(bench, folder / "part", _records(folder / "part", few, SLOW_EPOCHS, KEYS // SLOW_PART), few)
        both = {"ours": lambda: whole.ours(RUNNING_SUM), "peer": lambda: part.peer(operator)}
        taken = bench.rounds(both, unit="rows/s", warm_up=0)
        ratio = median_ratio(taken["ours"], taken["peer"])
        return [Figure(name, ratio, rate(taken["ours"]), rate(taken["peer"]), "the second of two epochs")]


def _records(folder: Path, rows: int, epochs: int, keys: int = KEYS) -> Input:
    records = Input(folder / "input")
    records.feed(rows, keys, files=epochs)
    return records
