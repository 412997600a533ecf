"""From the request for another parallelism to the first epoch at it, with a stop and a start on both sides."""

from __future__ import annotations

from benchmarks.harness import Bench, Figure, in_seconds, median_ratio
from benchmarks.rows.twins import OurTwin, SparkTwin

KEYS = 2_000_000


def against_spark(bench: Bench) -> list[Figure]:
    """Measure against stop, ``StreamingCheckpointManager.repartition`` and restart."""
    with bench.workspace("rescale_vs_spark") as folder:
        bench.say(f"making state of {KEYS:,} keys on both sides")
        ours, spark = OurTwin(bench, folder, KEYS), SparkTwin(bench, folder, KEYS)
        try:
            taken = bench.rounds({"ours": ours.rescale_s, "Spark": spark.rescale_s}, unit="s")
        finally:
            ours.stop()
            spark.stop()
        ratio = median_ratio(taken["Spark"], taken["ours"])
        return [Figure("rescale_vs_spark", ratio, in_seconds(taken["Spark"]), in_seconds(taken["ours"]))]
