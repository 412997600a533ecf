"""A job whose first epoch takes as long as a file is there, which it writes itself."""

from __future__ import annotations

import time
from pathlib import Path

from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.runtime import FunctionSink, Job
from statecore.runtime.generation import watchdog

LIMIT_S = 8
"""The watchdog's patience during that epoch. A query that begins is given more: on a busy machine it takes long."""
SEEN = ValueStateDescriptor("seen", "bigint")


class Count(KeyedProcessFunction):
    """Counts the records of each key."""

    def open(self, ctx):
        self.seen = ctx.get_state(SEEN)

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield value.k, self.seen.value()


def build(job: Job) -> None:
    called = Path(job.settings["output"]) / "called"

    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    def linger(dataframe, lineage, epoch):
        if epoch == 0:
            patience = watchdog.ANSWER_S, watchdog.PROGRESS_S
            watchdog.ANSWER_S = watchdog.PROGRESS_S = LIMIT_S
            called.parent.mkdir(parents=True, exist_ok=True)
            called.touch()
            while called.exists():
                time.sleep(0.1)
            watchdog.ANSWER_S, watchdog.PROGRESS_S = patience

    counted = job.source("records", read=read).key_by("k").process(Count(), output="k string, seen bigint", uid="count")
    counted.sink("slow", FunctionSink(linger))
