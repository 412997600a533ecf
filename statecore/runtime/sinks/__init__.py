"""Where committed outputs become visible, one file per kind of sink.

Workers stage rows as Parquet files; the manifest of the epoch names the files that count; publishing makes their rows
visible. Publishing may be repeated after a restart, so a sink must do nothing the second time.
"""

from statecore.runtime.sinks.base import Sink, StagedEpoch
from statecore.runtime.sinks.function import FunctionSink
from statecore.runtime.sinks.parquet import ParquetSink

__all__ = ["FunctionSink", "ParquetSink", "Sink", "StagedEpoch"]
