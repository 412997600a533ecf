"""A job from one Kafka topic to another."""

from __future__ import annotations

import time

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import Job, KafkaSink

SEEN = ValueStateDescriptor("seen", "bigint")


class Number(KeyedProcessFunction):
    """Numbers the records of each key, and takes some time for each."""

    def __init__(self, seconds):
        self.seconds = seconds

    def open(self, ctx):
        self.seen = ctx.get_state(SEEN)

    def process_element(self, value, ctx):
        time.sleep(self.seconds)
        self.seen.update((self.seen.value() or 0) + 1)
        yield value.k, value.n, self.seen.value(), value.origin


def build(job: Job) -> None:
    servers = job.settings["servers"]

    def read(spark):
        records = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option(job.settings.get("how", "subscribe"), job.settings["from"])
            .option("startingOffsets", job.settings.get("begin", "earliest"))
            .option("includeHeaders", "true")
            .option("minPartitions", job.settings.get("splits", "1"))
            .option("maxOffsetsPerTrigger", job.settings.get("most", "100"))
            .load()
        )
        return records.selectExpr(
            "CAST(key AS STRING) AS k",
            "CAST(CAST(value AS STRING) AS BIGINT) AS n",
            "CAST(headers[0].value AS STRING) AS origin",
            "timestamp AS at",
        )

    records = job.source("orders", read=read, event_time="at").key_by("k", order_by=("n",))
    number = Number(float(job.settings.get("seconds", "0")))
    numbered = records.process(number, output="k string, n bigint, seen bigint, origin string", uid="totals")
    # The marker of what is published has the name of the job and of the sink.
    numbered.sink(
        job.settings.get("sink", "numbered"), KafkaSink(job.settings["to"], servers, key="k", headers=("origin",))
    )
