"""A trial restart: one empty batch of a query, on a clone of its checkpoint.

The newest committed batch of the checkpoint is N. On the clone::

    offsets/N+1    offsets of batch N, so that no source has anything to read; watermark and time at 0
    commits/N+1    written by Spark once the batch is through
    metadata       another query id, so that Spark treats the trial as another query

Spark replays a batch that is logged but not committed without asking its sources for new data. It commits offsets to
sources only before the next batch, which ``trigger(once=True)`` never begins. At time 0 no timer, time to live or row
of state expires. So state must stay unchanged.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from statecore.errors import NotProvenError
from statecore.queries.copying.clone import cloned
from statecore.queries.job.query_file import Build, described
from statecore.queries.proving.digests import StoreDigest, digests
from statecore.queries.proving.proof import check_same_state
from statecore.queries.reading.checkpoint import METADATA, OFFSETS, SparkCheckpoint, open_checkpoint
from statecore.queries.reading.files import checksum_paths, files_below
from statecore.queries.reading.refusals import refusal_of
from statecore.queries.reading.state_files import state_file
from statecore.queries.spark_errors import short_message

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_OUTPUT_MODES = ("append", "update", "complete")
_REMEDY = (
    "give the query that wrote the checkpoint, with its settings; if it is, do not start it from this copy and report "
    "this message"
)


def trial_restart(
    spark: SparkSession,
    checkpoint_url: str,
    build: Build,
    settings: Mapping[str, str],
    scratch: Path,
    *,
    before: Sequence[StoreDigest] | None = None,
    limit: timedelta = timedelta(hours=6),
    tried_on: str = "the copy",
    remedy: str = _REMEDY,
) -> None:
    """Prove that Spark restarts a query from a checkpoint, with the state that is there.

    Nothing is written to the checkpoint, the query's own checkpoint, its sources or its sink.

    Args:
        spark: The session; the query gets one of its own.
        checkpoint_url: The checkpoint.
        build: Describes the query; see ``load_query``.
        settings: The settings that ``build`` gets.
        scratch: A local folder that does not exist, for the clone; on the file system of the checkpoint it costs no
            space. It is gone afterwards.
        before: Digests of the checkpoint's state, where they are known.
        limit: Time for the batch.
        tried_on: Name of the checkpoint, for messages.
        remedy: What to do about a query that does not restart, for messages.

    Raises:
        QueryDefinitionError: ``build`` fails, starts the query or returns something else.
        NotProvenError: Spark does not restart the query, the batch read or changed something, or it took too long.
        CheckpointError: The checkpoint cannot be cloned or read.
        StorageError: The storage fails.

    """
    with cloned(checkpoint_url, scratch) as copy:
        # State of a kind that is not covered cannot be compared; Spark loads it nonetheless.
        covered = refusal_of(copy) is None
        known = digests(spark, copy, _nothing) if before is None and covered else before or ()
        _drop_attempt(copy)
        _log_empty_batch(copy)
        own = spark.newSession()
        # Not in the offset log, and what `build` does not set is the default.
        own.conf.set(_FORMAT, str(copy.checkpoint_format))
        try:
            _check_progress(_run(described(own, build, settings).query, copy, limit), copy)
        except _Refusal as refusal:
            raise NotProvenError(
                f"found that the query does not restart from a clone of {tried_on}: {refusal}; expected one empty "
                f"batch, {copy.version}, with the state after batch {copy.batch}; {remedy}"
            ) from refusal.__cause__
        if covered:
            check_same_state(known, digests(spark, open_checkpoint(copy.url), _nothing))


def _drop_attempt(copy: SparkCheckpoint) -> None:
    """Remove the state of an attempt at the pending batch, because the trial's batch has the same number."""
    for entry in files_below(copy.url):
        if (written := state_file(entry.path)) is not None and written.version > copy.version:
            copy.store.delete_all([entry.path, *checksum_paths(entry.path)])


def _log_empty_batch(copy: SparkCheckpoint) -> None:
    log = copy.offsets[copy.batch]
    empty = replace(log, metadata={**log.metadata, "batchWatermarkMs": 0, "batchTimestampMs": 0})
    written = {
        f"{OFFSETS}/{copy.version}": empty.encode(),
        METADATA: msgspec.json.encode({"id": str(uuid.uuid4())}),
    }
    for path, data in written.items():
        # A new file: the old one may be a hard link. Its checksums are no longer right.
        copy.store.write(path, data)
        copy.store.delete_all(checksum_paths(path))


def _run(query: DataStreamWriter | DataFrame, copy: SparkCheckpoint, limit: timedelta) -> Mapping[str, Any] | None:
    """Run the batch and return Spark's progress report of it."""
    started: StreamingQuery | None = None
    try:
        started = _started(query, copy)
        ended = started.awaitTermination(max(1, int(limit.total_seconds())))
    except PySparkException as error:
        raise _Refusal(_cause(started) or short_message(str(error))) from error
    finally:
        if started is not None:
            started.stop()
    if not ended:
        raise _Refusal(f"its batch was not through after {limit}")
    last: Mapping[str, Any] | None = started.lastProgress
    return last


def _started(query: DataStreamWriter | DataFrame, copy: SparkCheckpoint) -> StreamingQuery:
    if isinstance(query, DataStreamWriter):
        return _start(query, copy)
    refusals = []
    for mode in _OUTPUT_MODES:
        try:
            return _start(query.writeStream.outputMode(mode), copy)
        except AnalysisException as error:
            refusals.append(error)
    raise refusals[0]


def _start(writer: DataStreamWriter, copy: SparkCheckpoint) -> StreamingQuery:
    # These replace the query's own sink, trigger and checkpoint.
    return (
        writer.format("noop")
        .option("checkpointLocation", copy.url)
        .queryName(f"statecore-trial-{uuid.uuid4()}")
        .trigger(once=True)
        .start()
    )


def _check_progress(progress: Mapping[str, Any] | None, copy: SparkCheckpoint) -> None:
    if progress is None or progress["batchId"] != copy.version:
        ran = "no batch" if progress is None else f"batch {progress['batchId']}"
        raise _Refusal(f"it ran {ran} instead of batch {copy.version}")
    if rows := progress["numInputRows"]:
        raise _Refusal(f"it read {rows:,} rows where its sources have nothing between two equal offsets")


class _Refusal(Exception):
    """Spark does not restart the query; the message says why."""


def _cause(query: StreamingQuery | None) -> str | None:
    """Return the innermost cause of a query's failure."""
    failure = None if query is None else query._jsq.exception()
    if failure is None or not failure.isDefined():
        return None
    error = failure.get()
    while (cause := error.getCause()) is not None:
        error = cause
    message = error.getMessage() or ""
    # Errors with a condition explain themselves; of others the class says something.
    return short_message(message if message.startswith("[") else error.toString())


def _nothing() -> None:
    """Report nothing."""
