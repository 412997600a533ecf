"""The runtime on Spark: the only place that imports pyspark."""

from statecore.runtime.job import Job
from statecore.runtime.offline.bootstrap import write_savepoint
from statecore.runtime.offline.copies import copy_savepoint
from statecore.runtime.offline.rewrite import rewrite_savepoint
from statecore.runtime.offline.tables import read_savepoint
from statecore.runtime.sinks import FunctionSink, ParquetSink, PostgresSink, Sink, StagedEpoch

__all__ = [
    "FunctionSink",
    "Job",
    "ParquetSink",
    "PostgresSink",
    "Sink",
    "StagedEpoch",
    "copy_savepoint",
    "read_savepoint",
    "rewrite_savepoint",
    "write_savepoint",
]
