"""The runtime on Spark: the only place that imports pyspark."""

from statecore.runtime.bootstrap import write_savepoint
from statecore.runtime.copy_savepoint import copy_savepoint
from statecore.runtime.job import Job
from statecore.runtime.rewrite import rewrite_savepoint
from statecore.runtime.savepoint_tables import read_savepoint
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
