"""Pairs of events of one key that are near in time; the second stream lies in a folder beside the first."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from benchmarks.inputs import EVENTS, JOIN_WITHIN_S, MAX_LATENESS_S
from statecore import ProcessJoinFunction
from statecore.runtime import Job, ParquetSink

RIGHT = "right"
"""Name of the second folder."""


class Pairs(ProcessJoinFunction):
    """Yields both numbers of a pair."""

    def process_element(self, left, right, ctx):
        yield left.k, left.n, right.n


def build(job: Job) -> None:
    folder = Path(job.settings["input"])

    def events(name, path):
        def read(spark):
            return spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).parquet(str(path))

        source = job.source(name, read=read, event_time="ts", max_lateness=timedelta(seconds=MAX_LATENESS_S))
        return source.key_by("k")

    within = timedelta(seconds=JOIN_WITHIN_S)
    near = events("left", folder).interval_join(events("right", folder.with_name(RIGHT))).between(-within, within)
    pairs = near.process(Pairs(), output="k string, n bigint, other bigint", uid="pairs")
    pairs.sink("pairs", ParquetSink(job.settings["output"]))
