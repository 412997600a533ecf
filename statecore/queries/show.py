"""Describes a checkpoint, for people and programs, without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from statecore.errors import CheckpointDamagedError
from statecore.queries.progress import Done, Report, quiet, steps
from statecore.queries.providers.recorded_rows import recorded_rows
from statecore.queries.reading.checkpoint import ATTEMPTS, SparkCheckpoint, has_changed, open_checkpoint
from statecore.queries.reading.files import files_below
from statecore.queries.reading.logs import OffsetLog
from statecore.queries.reading.operators import AGGREGATION, GROUPS, JOIN, StatefulOperator
from statecore.queries.reading.origin import Origin, read_origin
from statecore.queries.reading.refusals import GROUPS_FORMAT, JOIN_FORMAT, refusal_of
from statecore.queries.reading.schemas import is_keyless
from statecore.queries.reading.state_files import place_of
from statecore.storage import FileEntry

_FORMATS: Mapping[str, str] = {
    AGGREGATION: "spark.sql.streaming.aggregation.stateFormatVersion",
    JOIN: JOIN_FORMAT,
    **dict.fromkeys(GROUPS, GROUPS_FORMAT),
}
_OLD_FORMAT = "1"


@dataclass(frozen=True, slots=True)
class ShownOperator:
    """A stateful operator.

    Attributes:
        number: Its number in the query.
        name: Spark's name; empty without metadata.
        kind: What users call it.
        keyless: Whether it has no keys, and all its state in partition 0.
        state_format: Version of the format of its state; None where it has none of its own.
        metadata_version: Version of its metadata; 0 without any.
        partitions: Number of state partitions.
        stores: Names of its state stores.
        rows: Rows of each state partition, of all stores; None where Spark has not recorded them.
        bytes: Bytes of each state partition, of all versions that are there.

    """

    number: int
    name: str
    kind: str
    keyless: bool
    state_format: str | None
    metadata_version: int
    partitions: int
    stores: tuple[str, ...]
    rows: tuple[int | None, ...]
    bytes: tuple[int, ...]

    @property
    def skew(self) -> float | None:
        """Rows of the largest partition, relative to the mean; None without keys or rows, or where they are unknown."""
        if self.keyless:
            return None
        known = [rows for rows in self.rows if rows is not None]
        if len(known) < len(self.rows) or not sum(known):
            return None
        return max(known) * len(known) / sum(known)


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source of the query, as the logs describe it.

    Attributes:
        kind: The kind of source, guessed from its offset.
        offset: The end of the newest committed batch, as the source wrote it; None before its first data.

    """

    kind: str
    offset: str | None


@dataclass(frozen=True, slots=True)
class ShownCheckpoint:
    """A checkpoint.

    Attributes:
        path: Its URL.
        query_id: Id of the query.
        batch: The newest committed batch.
        pending: The batch that is logged and not committed, if any.
        provider: State store provider.
        checkpoint_format: State checkpoint format.
        partitions: Number of state partitions.
        watermark_ms: Event-time watermark of the newest committed batch in ms since 1970; 0 without one.
        operators: Its stateful operators.
        sources: Its sources.
        files: Number of files.
        bytes: Their size.
        origin: Where it came from, for a copy that statecore made.
        refusal: Why it cannot be rescaled; None if it can.

    """

    path: str
    query_id: str
    batch: int
    pending: int | None
    provider: str
    checkpoint_format: int
    partitions: int
    watermark_ms: int
    operators: tuple[ShownOperator, ...]
    sources: tuple[ShownSource, ...]
    files: int
    bytes: int
    origin: Origin | None
    refusal: str | None


def show(checkpoint: SparkCheckpoint, report: Report = quiet) -> ShownCheckpoint:
    """Describe a checkpoint; at a newer batch, if its query goes on meanwhile and removes what this one needs.

    Args:
        checkpoint: The checkpoint.
        report: Called with the number of state stores whose rows are counted, and of all.

    Raises:
        CheckpointDamagedError: A file is not whole.
        StorageError: The storage fails.

    """
    for left in reversed(range(ATTEMPTS)):
        try:
            return _shown(checkpoint, report)
        except CheckpointDamagedError:
            if not left or not has_changed(checkpoint):
                raise
        checkpoint = open_checkpoint(checkpoint.url)
    raise AssertionError("the last attempt returns or raises")


def _shown(checkpoint: SparkCheckpoint, report: Report) -> ShownCheckpoint:
    files = files_below(checkpoint.url)
    sizes, done = _sizes(files), steps(report, sum(len(operator.stores) for operator in checkpoint.operators))
    offsets = checkpoint.offsets[checkpoint.batch]
    return ShownCheckpoint(
        path=checkpoint.url,
        query_id=checkpoint.query_id,
        batch=checkpoint.batch,
        pending=checkpoint.pending,
        provider=checkpoint.provider,
        checkpoint_format=checkpoint.checkpoint_format,
        partitions=checkpoint.partitions,
        watermark_ms=offsets.watermark_ms,
        operators=tuple(_operator(checkpoint, operator, sizes, done) for operator in checkpoint.operators),
        sources=_sources(offsets),
        files=len(files),
        bytes=sum(entry.size for entry in files),
        origin=read_origin(checkpoint.store),
        refusal=refusal_of(checkpoint),
    )


def _operator(
    checkpoint: SparkCheckpoint,
    operator: StatefulOperator,
    sizes: Mapping[tuple[int, int], int],
    done: Done,
) -> ShownOperator:
    setting, keyless = _FORMATS.get(operator.name), is_keyless(checkpoint, operator)
    return ShownOperator(
        number=operator.number,
        name=operator.name,
        kind=f"global {operator.kind}" if keyless else operator.kind,
        keyless=keyless,
        state_format=None if setting is None else checkpoint.conf.get(setting, _OLD_FORMAT),
        metadata_version=operator.metadata_version,
        partitions=operator.partitions,
        stores=tuple(store.name for store in operator.stores),
        rows=recorded_rows(checkpoint, operator, done),
        bytes=tuple(sizes.get((operator.number, partition), 0) for partition in range(operator.partitions)),
    )


def _sizes(files: Iterable[FileEntry]) -> Mapping[tuple[int, int], int]:
    sizes: dict[tuple[int, int], int] = defaultdict(int)
    for entry in files:
        if (place := place_of(entry.path)) is not None:
            sizes[place] += entry.size
    return sizes


def _sources(offsets: OffsetLog) -> tuple[ShownSource, ...]:
    sources = []
    for line in offsets.sources:
        name, separator, offset = line.partition(":") if offsets.version > 1 else ("", "", line)
        kind = _kind(offset)
        sources.append(ShownSource(f"{name}: {kind}" if separator else kind, None if offset == "-" else offset))
    return tuple(sources)


def _kind(offset: str) -> str:
    """Return the kind of source, guessed from its offset."""
    try:
        match msgspec.json.decode(offset):
            case {"logOffset": int()}:
                return "files"
            case int():
                return "rate, socket or memory"
            case {"shardId": _} | {"sequenceNumber": _}:
                return "Kinesis"
            case {**topics} if topics and all(isinstance(each, dict) for each in topics.values()):
                return f"Kafka ({', '.join(sorted(map(str, topics)))})"
    except msgspec.MsgspecError:
        pass
    return "unknown"
