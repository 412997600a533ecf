"""A job from one Kafka topic to another, whose brokers ask for a password; it prints its plan, as people do."""

from __future__ import annotations

from statecore import ProcessFunction
from statecore.runtime import Job, KafkaSink, kafka_options


class Pass(ProcessFunction):
    """Passes records on."""

    def process_element(self, value, ctx):
        yield value.k, value.n


def build(job: Job) -> None:
    servers = job.settings["servers"]

    def read(spark):
        topic = spark.readStream.format("kafka").options(**kafka_options(servers))
        records = topic.option("subscribe", job.settings["from"]).option("startingOffsets", "earliest").load()
        records.explain(extended=True)
        return records.selectExpr("CAST(key AS STRING) AS k", "CAST(value AS STRING) AS n")

    passed = job.source("orders", read=read).process(Pass(), output="k string, n string", uid="pass")
    passed.sink("passed", KafkaSink(job.settings["to"], servers, key="k", value="n"))
