"""A query of Spark's own: numbers counted and summed by key, on the default state store, written by batch number."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import functions as F


def build(spark, settings):
    rows = spark.readStream.schema("k string, n long").option("maxFilesPerTrigger", 1).parquet(settings["input"])
    totals = rows.groupBy("k").agg(F.count("*").alias("count"), F.sum("n").alias("total"))
    output = Path(settings["output"])

    def write(batch, number):
        content = json.dumps(sorted(map(list, batch.collect())))
        made, staged = output / f"{number}.json", output / f".{number}.json"
        if made.exists():
            # A repeated batch has the same rows: others would have come of other state.
            assert made.read_text() == content, f"batch {number} differs from the one that is there"
        staged.write_text(content)
        staged.rename(made)

    return totals.writeStream.outputMode("update").foreachBatch(write)
