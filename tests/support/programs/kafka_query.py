"""Runs a query file on a checkpoint until it has read all that is there; the state store's provider is an argument."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from statecore.queries.query_file import described, load_query


def main(query: str, checkpoint: str, partitions: str, provider: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    if provider != "default":
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    writer = described(spark, load_query(query), {}).query
    assert isinstance(writer, DataStreamWriter)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
