"""Writes the class data archive that shortens the start of Spark's JVMs; see ``stack.quick_start``."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from stack.quick_start import ARCHIVE, QUICK

# Classes of a cluster's processes, which a local Spark does not load.
_CLASSES_OF_A_CLUSTER = (
    "org.apache.spark.deploy.master.Master",
    "org.apache.spark.deploy.worker.Worker",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
)


def write_archive() -> None:
    """Run a small stream and archive the classes it loads."""
    # Renamed when complete: a JVM that maps a partial archive crashes.
    partial = ARCHIVE.with_suffix(".partial")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} -XX:ArchiveClassesAtExit={partial}"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        spark.range(1000).selectExpr("id", "concat('k', id % 7) k").write.parquet(f"{folder}/input")
        rows = spark.readStream.schema("id long, k string").parquet(f"{folder}/input")
        grouped = rows.selectExpr("*", "xxhash64(k) hash").groupBy("k").agg({"id": "sum"})
        query = (
            grouped.writeStream.outputMode("complete")
            .foreachBatch(lambda batch, _: batch.mapInArrow(_itself, batch.schema).write.parquet(f"{folder}/output"))
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert spark.read.parquet(f"{folder}/output").count() == 7
    assert spark._jvm is not None
    for name in _CLASSES_OF_A_CLUSTER:
        spark._jvm.java.lang.Class.forName(name)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()
    if gateway.proc.wait() != 0:
        sys.exit(
            f"found exit code {gateway.proc.returncode} of Java while it wrote {partial}; expected 0; see its output"
        )
    partial.replace(ARCHIVE)


def _itself(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    write_archive()
