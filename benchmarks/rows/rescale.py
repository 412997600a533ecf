"""Rescale with stop and restart, and rewrite of state alone, on both sides with the same state."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from benchmarks.rows.twins import MOST, OurTwin, SparkTwin
from statecore.runtime.offline.rewrite import rewrite_savepoint

KEYS = 2_000_000


def rescale(bench: Bench) -> list[Figure]:
    """Measure both rows against ``StreamingCheckpointManager.repartition``, with and without stop and restart."""
    with bench.workspace("rescale") as folder:
        bench.say(f"making state of {KEYS:,} keys on both sides")
        ours, spark = OurTwin(bench, folder, KEYS), SparkTwin(bench, folder, KEYS)
        figures = []
        try:
            if bench.wants("rescale_vs_spark"):
                figures.append(_rescale(bench, ours, spark))
        finally:
            savepoint = ours.stop()
            spark.stop()
        if bench.wants("rewrite_vs_spark", "rewrite_bytes"):
            figures += _rewrite(bench, ours, savepoint, spark)
        return figures


def _rescale(bench: Bench, ours: OurTwin, spark: SparkTwin) -> Figure:
    """Measure from the request to the first epoch at the other parallelism."""
    taken = bench.rounds({"ours": ours.rescale_s, "Spark": spark.rescale_s}, unit="s to rescale")
    ratio = median_ratio(taken["Spark"], taken["ours"])
    return Figure("rescale_vs_spark", ratio, in_seconds(taken["Spark"]), in_seconds(taken["ours"]))


def _rewrite(bench: Bench, ours: OurTwin, savepoint: str, spark: SparkTwin) -> list[Figure]:
    """Measure time and bytes of the rewrite alone."""
    store = ours.job.store
    our_bytes: list[float] = []
    spark_bytes: list[float] = []

    def our_s() -> float:
        started = time.monotonic()
        name = f"rewritten-{len(our_bytes)}"
        path = rewrite_savepoint(bench.spark, store.describe(savepoint), name=name, parallelism=MOST)
        taken = time.monotonic() - started
        our_bytes.append(sum(file.size for file in store.manifest(path).files() if file.path.startswith("state/")))
        return taken

    def spark_s() -> float:
        before, started = spark.state_bytes, time.monotonic()
        spark.repartition()
        taken = time.monotonic() - started
        spark_bytes.append(spark.state_bytes - before)
        return taken

    taken = bench.rounds({"ours": our_s, "Spark": spark_s}, unit="s to rewrite")
    slow, quick = taken["Spark"], taken["ours"]
    return [
        Figure("rewrite_vs_spark", median_ratio(slow, quick), in_seconds(slow), in_seconds(quick)),
        Figure("rewrite_bytes", median_ratio(our_bytes, spark_bytes), _mb(our_bytes), _mb(spark_bytes)),
    ]


def _mb(sizes: list[float]) -> str:
    return f"{median(sizes) / 1e6:,.1f} MB"
