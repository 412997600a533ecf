"""Query file: flights by day and route, a plain windowed ``groupBy`` of Spark on its default state store.

Settings: ``input`` and ``output`` are directories; ``max_files_per_batch`` limits the files that one batch reads. Each
batch writes a folder of Parquet files by its number, and the same one when it is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

FLIGHTS = "sched_dep timestamp, carrier string, origin string, dest string, arr_delay int"
TOTALS = "day timestamp, origin string, dest string, flights long, landed long, delay_minutes long"


def by_day_and_route(flights: DataFrame) -> DataFrame:
    """Return ``TOTALS`` of ``FLIGHTS``, as a stream or as a batch."""
    routes = flights.groupBy(F.window("sched_dep", "1 day"), "origin", "dest")
    counted = routes.agg(
        F.count("*").alias("flights"),
        F.count("arr_delay").alias("landed"),
        F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("delay_minutes"),
    )
    return counted.select(F.col("window.start").alias("day"), *counted.columns[1:])


def build(spark: SparkSession, settings: Mapping[str, str]) -> DataStreamWriter:
    """Describe the query; statecore gives it its checkpoint."""
    source = spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", settings["max_files_per_batch"])
    flights = source.parquet(f"{settings['input']}/*").withWatermark("sched_dep", "30 days")

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{settings['output']}/batch={number}")

    return by_day_and_route(flights).writeStream.outputMode("update").foreachBatch(write)
