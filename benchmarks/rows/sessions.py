"""Throughput of a sum per key and session, compared with Spark's ``session_window``."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.harness import Bench, Figure, median_ratio
from benchmarks.inputs import EVENTS, Input
from benchmarks.ours import SESSION_SUM
from benchmarks.rows.throughput import EPOCHS, KEYS, ROWS, WARM_UP, Sides, rate


def against_spark(bench: Bench) -> list[Figure]:
    """Measure sessions that sum; both sides emit a session once, when the watermark has passed its end."""
    with bench.workspace("sessions") as folder:
        events = Input(folder / "input")
        events.feed_events(ROWS, KEYS, files=WARM_UP + EPOCHS)
        sides = Sides(bench, folder, events)
        both = {
            "ours": lambda: sides.ours(SESSION_SUM),
            "Spark": lambda: sides.peer(peers.session_sum, schema=EVENTS, output_mode="append"),
        }
        taken = bench.rounds(both, unit="rows/s")
        ratio = median_ratio(taken["ours"], taken["Spark"])
        return [Figure("session_vs_spark", ratio, rate(taken["ours"]), rate(taken["Spark"]), sides.note)]
