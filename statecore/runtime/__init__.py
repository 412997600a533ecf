"""The runtime on Spark: the only place that imports pyspark."""

import typing

from statecore import extras

# Before the first import of pyspark, whose files may be missing or mixed up.
extras.require("pyspark", extra="spark")
extras.refuse_pyspark_client()

from statecore.runtime.job import Job
from statecore.runtime.kafka_source import kafka_options
from statecore.runtime.offline.bootstrap import write_savepoint
from statecore.runtime.offline.copies import copy_savepoint
from statecore.runtime.offline.rewrite import rewrite_savepoint
from statecore.runtime.offline.tables import read_savepoint, read_timers
from statecore.runtime.sinks import FunctionSink, ParquetSink, Sink, StagedEpoch

if typing.TYPE_CHECKING:
    from statecore.runtime.sinks.delta import DeltaSink
    from statecore.runtime.sinks.kafka import KafkaSink
    from statecore.runtime.sinks.postgres import PostgresSink

__all__ = [
    "DeltaSink",
    "FunctionSink",
    "Job",
    "KafkaSink",
    "ParquetSink",
    "PostgresSink",
    "Sink",
    "StagedEpoch",
    "copy_savepoint",
    "kafka_options",
    "read_savepoint",
    "read_timers",
    "rewrite_savepoint",
    "write_savepoint",
]


def __getattr__(name: str) -> object:
    """Import a sink on demand whose dependencies only an extra installs."""
    if name == "PostgresSink":
        extras.require("psycopg", extra="postgres")
        from statecore.runtime.sinks.postgres import PostgresSink

        return PostgresSink
    if name == "DeltaSink":
        extras.require("deltalake", extra="delta")
        from statecore.runtime.sinks.delta import DeltaSink

        return DeltaSink
    if name == "KafkaSink":
        extras.require("confluent_kafka", extra="kafka")
        from statecore.runtime.sinks.kafka import KafkaSink

        return KafkaSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
