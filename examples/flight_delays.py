"""Job file: running delays per aircraft, alerts on aircraft that stay late, and rejects.

Settings: ``input`` and ``output`` are directories; ``max_files_per_epoch`` limits the files that one epoch reads.

For Kafka, ``servers`` are its brokers. ``from`` is a topic to read in place of ``input``: JSON objects, with the
aircraft as their key; ``max_rows_per_epoch`` limits an epoch. ``to`` begins the names of the topics to write in place
of ``output``: ``<to>-alerts`` and ``<to>-rejects``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from statecore import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    ValueStateDescriptor,
)
from statecore.functions import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ProcessContext,
    RuntimeContext,
)
from statecore.runtime import Job, ParquetSink, Sink

FLIGHTS = (
    "sched_dep timestamp, carrier string, flight int, tailnum string, origin string, dest string, "
    "dep_time int, arr_delay int"
)
ALERTS = "tailnum string, sched_dep timestamp, carrier string, flight int, origin string, delays array<int>"
REJECT = "struct<tailnum:string,sched_dep:timestamp,carrier:string,flight:int,origin:string,dest:string,reason:string>"
REJECTS = OutputTag("rejects", REJECT)

TOTALS = ValueStateDescriptor("totals", "struct<flights:bigint,delay_minutes:bigint>")
LAST_DELAYS = ListStateDescriptor("last_delays", "int")
REJECT_BUFFER = ListStateDescriptor("rejects", REJECT)

LATE_MINUTES = 15
LEGS_IN_A_ROW = 3
REJECTS_TOGETHER = 100


class FlightDelays(KeyedProcessFunction, CheckpointedFunction):
    """Per tail number: legs flown, delay minutes, the last arrival delays, an alert on a run of late legs."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Restore the rejects that wait in this subtask."""
        self._reject_buffer = context.operator_state_store.get_list_state(REJECT_BUFFER)
        self._rejects = list(self._reject_buffer.get())

    def open(self, ctx: RuntimeContext) -> None:
        """Get the state of the aircraft."""
        self._totals = ctx.get_state(TOTALS)
        self._last_delays = ctx.get_list_state(LAST_DELAYS)

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterator[tuple[Any, ...]]:
        """Count a flown leg, and yield an alert if it completes a run of late legs; any other flight is a reject."""
        reason = reject_reason(value)
        if reason is not None:
            self._reject(value, reason, ctx)
            return

        flights, delay_minutes = self._totals.value() or (0, 0)
        self._totals.update((flights + 1, delay_minutes + value.arr_delay))
        delays = [*self._last_delays.get(), value.arr_delay][-LEGS_IN_A_ROW:]
        self._last_delays.update(delays)
        if len(delays) == LEGS_IN_A_ROW and min(delays) > LATE_MINUTES:
            yield value.tailnum, value.sched_dep, value.carrier, value.flight, value.origin, delays

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Save the rejects that still wait."""
        self._reject_buffer.update(self._rejects)

    def _reject(self, value: Any, reason: str, ctx: ProcessContext) -> None:
        self._rejects.append(
            (value.tailnum, value.sched_dep, value.carrier, value.flight, value.origin, value.dest, reason)
        )
        # A rescale can merge the buffers of several subtasks, so there may be more than the limit.
        if len(self._rejects) >= REJECTS_TOGETHER:
            for reject in self._rejects:
                ctx.output(REJECTS, reject)
            self._rejects.clear()


def reject_reason(flight: Any) -> str | None:
    """Return why the flight cannot be counted, or None for a flown leg; the first matching reason wins."""
    if flight.tailnum is None:
        return "no tail number"
    if flight.dep_time is None:
        return "cancelled"
    if flight.arr_delay is None:
        return "diverted"
    return None


def build(job: Job) -> None:
    """Wire the job: flights in; alerts and rejects out."""
    settings = job.settings

    def read_files(spark: SparkSession) -> DataFrame:
        max_files = settings.get("max_files_per_epoch", "10")
        reader = spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", max_files)
        return reader.parquet(f"{settings['input']}/*")

    def read_topic(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", settings["servers"])
        reader = reader.option("subscribe", settings["from"]).option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", settings.get("max_rows_per_epoch", "100000"))
        records = reader.option("kafka.isolation.level", "read_committed").load()
        # A value that is no flight stops the job; by default it would become a flight without any data.
        flight = F.from_json(F.col("value").cast("string"), FLIGHTS, {"mode": "FAILFAST"})
        return records.select(flight.alias("flight")).select("flight.*")

    flights = job.source("flights", read=read_topic if "from" in settings else read_files)
    alerts = flights.key_by("tailnum", order_by=("sched_dep", "carrier", "flight", "origin")).process(
        FlightDelays(), output=ALERTS, uid="flight_delays"
    )
    alerts.sink("alerts", _sink(settings, "alerts"))
    alerts.side_output(REJECTS).sink("rejects", _sink(settings, "rejects"))


def _sink(settings: Mapping[str, str], name: str) -> Sink:
    if "to" not in settings:
        return ParquetSink(f"{settings['output']}/{name}")
    # Not above: it needs the extra `kafka`.
    from statecore.runtime import KafkaSink

    return KafkaSink(f"{settings['to']}-{name}", settings["servers"], key="tailnum")
