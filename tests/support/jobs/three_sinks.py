"""A job with every kind of sink on one operator; the database is the one of the environment."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import FunctionSink, Job, ParquetSink, PostgresSink

SEEN = ValueStateDescriptor("seen", "bigint")


class Number(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, ctx):
        self.seen = ctx.get_state(SEEN)

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield value.k, value.n, self.seen.value()


def build(job: Job) -> None:
    output = Path(job.settings["output"])

    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    def keep(dataframe, lineage, epoch):
        dataframe.write.mode("overwrite").parquet(str(output / "function" / f"lineage={lineage}" / f"epoch={epoch}"))
        with (output / "calls").open("a") as calls:
            calls.write(f"{lineage}-{epoch}\n")
        killed = output / "killed"
        if epoch >= 3 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    records = job.source("records", read=read).key_by("k", order_by=("n",))
    numbered = records.process(Number(), output="k string, n bigint, seen bigint", uid="totals")
    numbered.sink("files", ParquetSink(output / "files"))
    numbered.sink("table", PostgresSink("", "numbered"))
    numbered.sink("function", FunctionSink(keep))
