"""The rows, in the order in which they are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness import Bench, Figure, Target
from benchmarks.rows import growth, live, record, rescale

TARGETS = {
    target.name: target
    for target in (
        Target("record_vs_spark", "rows/s, record by record, to Spark's groupBy().sum()", 0.9, True),
        Target("batch_vs_spark", "the same with process_batch", 1.5, True),
        Target("record_vs_tws_row", "rows/s to transformWithState", 15, True),
        Target("record_vs_tws_pandas", "rows/s to transformWithStateInPandas", 60, True),
        Target("rescale_vs_spark", "Spark's seconds from request to first epoch, to ours", 2, True),
        Target("live_vs_restart", "seconds without output, live to a restart", 0.15, False),
        Target("live_hiccup", "seconds to the first epoch after a live rescale, to the median epoch", 2.5, False),
        Target("rewrite_vs_spark", "Spark's seconds of a repartition, to ours of a rewrite", 5, True),
        Target("rewrite_bytes", "our bytes of a rewrite, to Spark's of a repartition", 0.2, False),
        Target("savepoint_growth", "seconds of stop and rescale by reference, many keys to few", 1.5, False),
        Target("epoch_growth", "seconds of an epoch, many keys to few", 1.3, False),
    )
}


@dataclass(frozen=True, slots=True)
class Family:
    """Rows that are measured on the same state."""

    rows: tuple[str, ...]
    measure: Callable[[Bench], Sequence[Figure]]


FAMILIES = (
    Family(("record_vs_spark",), record.against_spark),
    Family(("batch_vs_spark",), record.batch_against_spark),
    Family(("record_vs_tws_row",), record.against_tws_row),
    Family(("record_vs_tws_pandas",), record.against_tws_pandas),
    Family(("live_vs_restart", "live_hiccup"), live.live),
    Family(("rescale_vs_spark", "rewrite_vs_spark", "rewrite_bytes"), rescale.rescale),
    Family(("savepoint_growth", "epoch_growth"), growth.growth),
)
