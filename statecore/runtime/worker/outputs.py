"""Stages the outputs of a function as Parquet, until its epoch is committed and published.

::

    _staged/<lineage>-<epoch>-<sink>-<subtask>-<token>.parquet

There is no folder per epoch: a file system would keep the empty folders, and every listing would walk them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from statecore.errors import SinkError, StorageError
from statecore.model import OutputTag, arrow_schema
from statecore.runtime.messages import StagedSink
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import StagedOutput
from statecore.state.output_schema import cast_to_schema, convert_to_schema
from statecore.state.process import MAIN_OUTPUT

STAGED = "_staged"

_BUFFERED_ROWS = 32 * 1024
_NAME = re.compile(r"_staged/(\d+)-(\d+)-(.+)-\d+-[^-]+")


class StagedName(NamedTuple):
    """The parts of a staged file's path."""

    lineage: int
    epoch: int
    sink: str

    @classmethod
    def parse(cls, path: str) -> StagedName | None:
        """Parse a path; None for another file."""
        match = _NAME.fullmatch(path)
        return cls(int(match[1]), int(match[2]), match[3]) if match else None


def published_name(path: str) -> str:
    """Return the name of a staged file once published; the folder's name then holds the epoch."""
    return path.rsplit("/", 1)[-1].split("-", 2)[-1]


class Outputs:
    """Collects outputs by tag and stages them as Parquet; outputs without a sink are dropped."""

    def __init__(self, sinks: Iterable[StagedSink]) -> None:
        self._buffers = {sink.name: _OutputBuffer(sink) for sink in sinks}
        self._by_tag: dict[str, list[_OutputBuffer]] = {}
        for buffer in self._buffers.values():
            self._by_tag.setdefault(buffer.sink.tag, []).append(buffer)
        self._main = self._by_tag.get(MAIN_OUTPUT, [])

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None = None) -> None:
        """Add one output; sinks do not keep its event time."""
        for buffer in self._by_tag.get(tag.name, ()):
            buffer.add_all((value,))

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None = None) -> None:
        """Add outputs of the main output."""
        if len(self._main) == 1:
            # Inlined, because this runs for every record.
            buffer = self._main[0]
            buffer.pending.extend(values)
            if len(buffer.pending) >= _BUFFERED_ROWS:
                buffer.flush()
        else:
            # Consume the values even without a sink: a generator runs only while it is consumed.
            rows = list(values)
            for buffer in self._main:
                buffer.add_all(rows)

    def emit_batch(self, tag: OutputTag | None, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> None:
        """Add many outputs as columns."""
        for buffer in self._main if tag is None else self._by_tag.get(tag.name, ()):
            buffer.add_batch(rows)

    def stage(self, epoch: str, attempt: str) -> Iterator[StagedOutput]:
        """Write one file per sink with rows.

        Args:
            epoch: ``<lineage>-<epoch>``.
            attempt: ``<subtask>-<token>``.

        """
        for buffer in self._buffers.values():
            output = buffer.stage(f"{STAGED}/{epoch}-{buffer.sink.name}-{attempt}.parquet")
            if output is not None:
                yield output


class _OutputBuffer:
    def __init__(self, sink: StagedSink) -> None:
        self.sink = sink
        self._purpose = f"for sink {sink.name!r}"
        self.pending: list[Any] = []
        self._batches: list[pa.RecordBatch] = []

    def add_all(self, values: Iterable[Any]) -> None:
        self.pending.extend(values)
        if len(self.pending) >= _BUFFERED_ROWS:
            self.flush()

    def add_batch(self, rows: pa.RecordBatch) -> None:
        self.flush()
        self._batches.append(cast_to_schema(rows, self.sink.fields, self._purpose))

    def stage(self, path: str) -> StagedOutput | None:
        self.flush()
        if not self._batches:
            return None
        table = pa.Table.from_batches(self._batches, arrow_schema(self.sink.fields))
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        store = CheckpointStore(self.sink.store)
        try:
            file = store.write_file(path, sink.getvalue().to_pybytes())
        except StorageError as error:
            raise SinkError(
                f"found rows that sink {self.sink.name!r} cannot stage: {error}; expected its place to take them; look "
                "whether it is there, and has space left"
            ) from error
        return StagedOutput(sink=self.sink.name, file=file, rows=table.num_rows)

    def flush(self) -> None:
        if self.pending:
            rows = convert_to_schema(self.pending, self.sink.fields, self._purpose)
            self._batches.append(pa.RecordBatch.from_struct_array(rows))
            self.pending = []
