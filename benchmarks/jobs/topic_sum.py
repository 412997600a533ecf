"""A running sum per key from one Kafka topic to another; every record yields the sum so far."""

from __future__ import annotations

from benchmarks.jobs.running_sum import UID, RunningSum
from statecore.runtime import Job, KafkaSink


class TopicSum(RunningSum):
    """Puts the sum out as text, which a topic takes as it is."""

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value.n
        self.total.update(total)
        yield value.k, str(total)


def build(job: Job) -> None:
    settings = job.settings

    def read(spark):
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", settings["servers"])
        reader = reader.option("subscribe", settings["from"]).option("startingOffsets", "earliest")
        records = reader.option("maxOffsetsPerTrigger", settings["rows"]).load()
        return records.selectExpr("CAST(key AS STRING) AS k", "CAST(CAST(value AS STRING) AS BIGINT) AS n")

    records = job.source("records", read=read).key_by("k")
    sums = records.process(TopicSum(), output="k string, total string", uid=UID)
    sums.sink("totals", KafkaSink(settings["to"], settings["servers"], key="k", value="total"))
