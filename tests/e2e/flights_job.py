"""The second job of these tests: flights of 2013, counted and their delays summed by carrier, into two sinks.

What it can do follows from the pause of a row in the subtask that has it, and, while the file of the setting ``slow``
exists, from the pause of a row in one of the sinks.
"""

from __future__ import annotations

import time
from pathlib import Path

from statecore import KeyedProcessFunction, OutputTag, ValueStateDescriptor
from statecore.runtime import Job, ParquetSink

DELAYS = ValueStateDescriptor("delays", "struct<flights:bigint,minutes:bigint>")
NOT_FLOWN = OutputTag("not_flown", "struct<n:bigint,carrier:string>")
ROW_PAUSE_S, SINK_PAUSE_S = 0.004, 0.006
INPUT = "n bigint, carrier string, arr_delay int"
OUTPUT = "n bigint, carrier string, flights bigint, minutes bigint"


class Delays(KeyedProcessFunction):
    def open(self, ctx):
        self.delays = ctx.get_state(DELAYS)

    def process_element(self, value, ctx):
        time.sleep(ROW_PAUSE_S)
        if value.arr_delay is None:
            ctx.output(NOT_FLOWN, (value.n, value.carrier))
            return
        flights, minutes = self.delays.value() or (0, 0)
        self.delays.update((flights + 1, minutes + value.arr_delay))
        yield value.n, value.carrier, flights + 1, minutes + value.arr_delay


class PausingSink(ParquetSink):
    """As slow as a table without an index, while a file says so."""

    def __init__(self, path, slow):
        super().__init__(path)
        self.slow = Path(slow)

    def publish(self, staged):
        if self.slow.exists():
            time.sleep(SINK_PAUSE_S * sum(output.rows for output in staged.outputs))
        super().publish(staged)


def build(job: Job) -> None:
    settings = job.settings

    def read(spark):
        return spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(f"{settings['input']}/*")

    flights = job.source("flights", read=read)
    flown = flights.key_by("carrier", order_by=("n",)).process(Delays(), output=OUTPUT, uid="delays")
    flown.sink("flown", PausingSink(f"{settings['output']}/flown", settings["slow"]))
    flown.side_output(NOT_FLOWN).sink("not_flown", ParquetSink(f"{settings['output']}/not_flown"))
