"""The outputs of a function with their event time, which harnesses leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from statecore import OutputTag


class TimedOutputs:
    """Collects outputs with their event time."""

    def __init__(self) -> None:
        self.main: list[Any] = []
        self.side: list[Any] = []

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        self.side.append(list(value))

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None) -> None:
        self.main += [[*value, timestamp_ms] for value in values]

    def emit_batch(self, tag: OutputTag | None, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> None:
        raise AssertionError("no function over batches is tested with it")
