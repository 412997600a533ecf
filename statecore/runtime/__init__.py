"""The runtime on Spark: the only place that imports pyspark."""

from statecore.runtime.job import Job
from statecore.runtime.rewrite import rewrite_savepoint
from statecore.runtime.savepoint_tables import read_savepoint
from statecore.runtime.sinks import ParquetSink, Sink

__all__ = ["Job", "ParquetSink", "Sink", "read_savepoint", "rewrite_savepoint"]
