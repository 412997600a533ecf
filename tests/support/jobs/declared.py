"""Two operators whose outputs are declared by classes, the second fed by the first, and a Delta table of the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from statecore import KeyedProcessFunction, OutputTag, ProcessFunction, ValueStateDescriptor
from statecore.runtime import DeltaSink, Job, ParquetSink


@dataclass
class Part:
    name: str
    n: int | None = None


@dataclass
class Reading:
    k: str
    n: int
    at: datetime
    parts: list[Part] = field(default_factory=list)


@dataclass
class Total:
    k: str
    sum: int
    latest: Part | None


ODD = OutputTag("odd", Reading)


class Read(ProcessFunction):
    """Makes a reading of each record; odd ones go to the side output as well."""

    def process_element(self, value, ctx):
        reading = Reading(
            value.k, value.n, datetime.fromtimestamp(value.n, UTC), [Part("whole", value.n), Part("none")]
        )
        if value.n % 2:
            ctx.output(ODD, reading)
        yield reading


class Sum(KeyedProcessFunction):
    """Sums per key."""

    def open(self, ctx):
        self.sum = ctx.get_state(ValueStateDescriptor("sum", "bigint"))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value.n)
        yield Total(value.k, self.sum.value(), None if value.n % 3 else Part(*value.parts[0]))


def build(job: Job) -> None:
    def read(spark):
        reader = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(job.settings["input"])

    readings = job.source("records", read=read).process(Read(), output=Reading, uid="read")
    readings.side_output(ODD).sink("odd", ParquetSink(job.settings["output"] + "/odd"))
    totals = readings.key_by("k", order_by=("n",)).process(Sum(), output=Total, uid="sum")
    totals.sink("totals", DeltaSink(job.settings["output"] + "/totals"))
