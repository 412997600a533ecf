"""A job that tells the environment of its driver and of its subtasks."""

from __future__ import annotations

import os
from pathlib import Path

from statecore import ProcessFunction
from statecore.runtime import Job, ParquetSink


class Tell(ProcessFunction):
    """Yields each variable of the subtask's environment."""

    def process_element(self, value, ctx):
        yield from ((name, text) for name, text in os.environ.items())


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    Path(job.settings["driver"]).write_text("\n".join(f"{name}={text}" for name, text in os.environ.items()))
    told = job.source("records", read=read).process(Tell(), output="name string, text string", uid="tell")
    told.sink("told", ParquetSink(job.settings["output"] + "/told"))
