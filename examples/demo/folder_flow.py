"""The demo with folders: flights come in as files, alerts and rejects go out as files."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from examples.demo.feeder import Feeder
from examples.demo.flow import Demo
from examples.flight_delays import FLIGHTS
from stack.stack import Stack


class FolderDemo(Demo):
    """One run of the demo with folders, on a stack that it starts.

    Args:
        stack: A stack in an empty folder, not started yet.
        console: Console for progress.

    """

    def __init__(self, stack: Stack, console: Console) -> None:
        self._input = stack.run_dir / "input"
        self._files = Feeder(self._input)
        super().__init__(stack, console, self._files)

    def _conf(self) -> Mapping[str, str]:
        return {}

    def _settings(self, rows_per_epoch: int) -> Mapping[str, str]:
        return {"input": str(self._input), "output": str(self._output), "max_files_per_epoch": "1"}

    def _feed_backlog(self, rows: pa.Table, rows_per_epoch: int) -> None:
        self._files.feed_backlog(rows, rows_per_file=rows_per_epoch)

    def _fed_flights(self, spark: SparkSession) -> DataFrame:
        return spark.read.schema(FLIGHTS).parquet(f"{self._input}/*")

    def _published(self, spark: SparkSession, sink: str, schema: str) -> DataFrame:
        folder = self._output / sink
        rows = spark.read.schema(schema).parquet(str(folder)) if folder.is_dir() else spark.createDataFrame([], schema)
        return rows.select(*[F.col(name) for name in rows.columns if name not in ("lineage", "epoch")])
