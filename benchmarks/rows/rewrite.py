"""Laying state out anew: our rewrite against Spark's repartition, both alone."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from benchmarks.rows.twins import MOST, OurTwin, SparkTwin
from statecore.runtime.rewrite import rewrite_savepoint

KEYS = 2_000_000


def rewrite(bench: Bench) -> list[Figure]:
    """Measure time and bytes."""
    with bench.workspace("rewrite") as folder:
        bench.say(f"making state of {KEYS:,} keys on both sides")
        ours, spark = OurTwin(bench, folder, KEYS), SparkTwin(bench, folder, KEYS)
        store, savepoint = ours.job.store, ours.stop()
        spark.stop()
        our_bytes: list[float] = []
        spark_bytes: list[float] = []

        def our_s() -> float:
            started = time.monotonic()
            path = rewrite_savepoint(
                bench.spark, store.describe(savepoint), name=f"rewritten-{len(our_bytes)}", parallelism=MOST
            )
            taken = time.monotonic() - started
            our_bytes.append(sum(file.size for file in store.manifest(path).files() if file.path.startswith("state/")))
            return taken

        def spark_s() -> float:
            before, started = spark.state_bytes, time.monotonic()
            spark.repartition()
            taken = time.monotonic() - started
            spark_bytes.append(spark.state_bytes - before)
            return taken

        taken = bench.rounds({"ours": our_s, "Spark": spark_s}, unit="s")
        slow, quick = taken["Spark"], taken["ours"]
        return [
            Figure("rewrite_vs_spark", median_ratio(slow, quick), in_seconds(slow), in_seconds(quick)),
            Figure("rewrite_bytes", median_ratio(our_bytes, spark_bytes), _mb(our_bytes), _mb(spark_bytes)),
        ]


def _mb(sizes: list[float]) -> str:
    return f"{median(sizes) / 1e6:,.1f} MB"
