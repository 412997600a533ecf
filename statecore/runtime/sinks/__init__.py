"""Sinks: they make the outputs of committed epochs visible.

Workers stage rows as Parquet files. The epoch's manifest names the files that are committed. The driver then asks the
sink to publish them, and asks again after a restart, so publishing must be idempotent.
"""

from statecore.runtime.sinks.base import Sink, StagedEpoch
from statecore.runtime.sinks.function import FunctionSink
from statecore.runtime.sinks.parquet import ParquetSink

__all__ = ["FunctionSink", "ParquetSink", "Sink", "StagedEpoch"]
