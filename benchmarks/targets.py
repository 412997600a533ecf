"""The rows and their targets, in the order of measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness import Bench, Figure, Target
from benchmarks.rows import (
    check,
    growth,
    joins,
    live,
    lookup,
    pages,
    queries,
    record,
    rescale,
    sampling,
    sessions,
    simulation,
    small_epochs,
    topics,
    transformations,
    upkeep,
)

TARGETS = {
    target.name: target
    for target in (
        Target("record_vs_spark", "rows/s, process_element / Spark's groupBy().sum()", 0.9, True),
        Target("batch_vs_spark", "rows/s, process_batch / Spark's groupBy().sum()", 1.5, True),
        Target("record_vs_tws_row", "rows/s, process_element / transformWithState", 15, True),
        Target("record_vs_tws_pandas", "rows/s, process_element / transformWithStateInPandas", 60, True),
        Target("rescale_vs_spark", "seconds from request to first epoch, Spark / ours", 2, True),
        Target("live_vs_restart", "seconds without output, live rescale / restart", 0.15, False),
        Target("live_hiccup", "seconds to the first epoch after a live rescale / median epoch", 2.5, False),
        Target("rewrite_vs_spark", "seconds, Spark's repartition / our rewrite", 5, True),
        Target("rewrite_bytes", "bytes written, our rewrite / Spark's repartition", 0.2, False),
        Target("savepoint_growth", "seconds of stop and rescale by reference, many keys / few keys", 1.5, False),
        Target("epoch_growth", "seconds of an epoch, many keys / few keys", 1.3, False),
        Target(
            "small_epoch_vs_spark", "seconds of an epoch of 1,000 rows, ours / Spark's groupBy().sum()", 0.55, False
        ),
        Target("sampling_share", "an epoch's time, that for sampling keys / all", 0.01, False),
        Target("upkeep_growth", "driver time for upkeep of an epoch, 200 subtasks / 2 subtasks", 20, False),
        Target(
            "simulated_drain",
            "seconds until a pile is gone, simulated and real, longer / shorter",
            1.25,
            False,
            must_hold=True,
        ),
        Target(
            "simulated_epochs", "seconds of an epoch, simulated and real, longer / shorter", 1.25, False, must_hold=True
        ),
        Target(
            "simulated_rescale",
            "the drain at parallelism 1, simulated by epochs at 2 / real",
            1.25,
            False,
            must_hold=True,
        ),
        Target("session_vs_spark", "rows/s, a sum per session / Spark's session_window", 1, True),
        Target("interval_join_vs_spark", "rows/s, an interval join / Spark's stream-stream join", 1, True),
        Target("pages_growth", "seconds of the list of jobs, 200 jobs / 10 jobs", 4, False),
        Target("state_lookup_growth", "seconds to look up a key's state, 5,000,000 keys / 50,000 keys", 2, False),
        Target("check_cost", "seconds of statecore check / of a program that starts a Spark session", 1.5, False),
        Target("series_growth", "seconds of a job's charts, 24 hours / 15 minutes", 2, False),
        Target("transform_cost", "seconds of an epoch, with transformations / without", 1.15, False),
        Target(
            "query_rescale_vs_spark", "seconds, our clone, rescale and proof on RocksDB / Spark's repartition", 2, False
        ),
        Target("query_rescale_hdfs", "seconds, the same on the HDFS-backed provider / Spark's repartition", 1.5, False),
        Target("query_rescale_growth", "seconds of a rescale per row, many keys / few keys", 1.2, False),
        Target("kafka_vs_spark", "rows/s, topic to topic, process_element / Spark's groupBy().sum()", 0.9, True),
        Target("kafka_publish", "rows/s, an epoch in KafkaSink / a bare transactional producer", 0.7, True),
    )
}


@dataclass(frozen=True, slots=True)
class Family:
    """Rows measured on the same state.

    Attributes:
        group: The group of rows that it belongs to.
        rows: The rows.
        measure: Measures them.

    """

    group: str
    rows: tuple[str, ...]
    measure: Callable[[Bench], Sequence[Figure]]


FAMILIES = (
    Family("core", ("record_vs_spark",), record.against_spark),
    Family("core", ("batch_vs_spark",), record.batch_against_spark),
    Family("core", ("record_vs_tws_row",), record.against_tws_row),
    Family("core", ("record_vs_tws_pandas",), record.against_tws_pandas),
    Family("core", ("live_vs_restart", "live_hiccup"), live.live),
    Family("core", ("rescale_vs_spark", "rewrite_vs_spark", "rewrite_bytes"), rescale.rescale),
    Family("core", ("savepoint_growth", "epoch_growth"), growth.growth),
    Family("core", ("small_epoch_vs_spark",), small_epochs.against_spark),
    Family("core", ("sampling_share",), sampling.sampling),
    Family("core", ("upkeep_growth",), upkeep.upkeep),
    Family("core", ("simulated_drain", "simulated_epochs", "simulated_rescale"), simulation.simulation),
    Family("control", ("pages_growth", "series_growth"), pages.growth),
    Family("control", ("state_lookup_growth",), lookup.growth),
    Family("control", ("check_cost",), check.cost),
    Family("programs", ("session_vs_spark",), sessions.against_spark),
    Family("programs", ("interval_join_vs_spark",), joins.against_spark),
    Family("programs", ("transform_cost",), transformations.cost),
    Family("queries", ("query_rescale_vs_spark", "query_rescale_hdfs", "query_rescale_growth"), queries.rescale),
    Family("kafka", ("kafka_vs_spark",), topics.against_spark),
    Family("kafka", ("kafka_publish",), topics.publish),
)

GROUPS = tuple(dict.fromkeys(family.group for family in FAMILIES))
"""What ``make bench GROUP=…`` runs: in at most half an hour each."""
