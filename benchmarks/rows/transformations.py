"""Cost of transformations in the JVM: the same job with and without them."""

from __future__ import annotations

from benchmarks.harness import Bench, Figure, median_ratio
from benchmarks.inputs import Input
from benchmarks.ours import CHAINED_SUM
from benchmarks.rows.throughput import EPOCHS, KEYS, ROWS, WARM_UP, Sides, rate


def cost(bench: Bench) -> list[Figure]:
    """Measure a filter and a computed column before an operator and after it."""
    with bench.workspace("transformations") as folder:
        records = Input(folder / "input")
        records.feed(ROWS, KEYS, files=WARM_UP + EPOCHS)
        sides = Sides(bench, folder, records)
        both = {
            "without": lambda: sides.ours(CHAINED_SUM),
            "with": lambda: sides.ours(CHAINED_SUM, {"transformed": "yes"}),
        }
        taken = bench.rounds(both, unit="rows/s")
        ratio = median_ratio(taken["without"], taken["with"])
        return [Figure("transform_cost", ratio, rate(taken["with"]), rate(taken["without"]), sides.note)]
