"""Throughput of an interval join, compared with Spark's stream-stream join."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.harness import Bench, Figure, median_ratio
from benchmarks.inputs import EVENTS, Input
from benchmarks.jobs.interval_join import RIGHT
from benchmarks.ours import INTERVAL_JOIN
from benchmarks.rows.throughput import EPOCHS, FEWER_ROWS, KEYS, WARM_UP, Sides, rate


def against_spark(bench: Bench) -> list[Figure]:
    """Measure pairs of events of two streams with half of the rows each; both sides emit a pair when it is complete."""
    with bench.workspace("joins") as folder:
        left, right = Input(folder / "left"), Input(folder / RIGHT, seed=1)
        for events in (left, right):
            events.feed_events(FEWER_ROWS // 2, KEYS, files=WARM_UP + EPOCHS)
        sides = Sides(bench, folder, left, FEWER_ROWS)
        both = {
            "ours": lambda: sides.ours(INTERVAL_JOIN),
            "Spark": lambda: sides.peer(peers.interval_join(right.folder), schema=EVENTS, output_mode="append"),
        }
        taken = bench.rounds(both, unit="rows/s")
        ratio = median_ratio(taken["ours"], taken["Spark"])
        return [Figure("interval_join_vs_spark", ratio, rate(taken["ours"]), rate(taken["Spark"]), sides.note)]
