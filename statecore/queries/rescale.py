"""A checkpoint for another number of state partitions, with proof.

::

    PATH ──clone──► source ──each row of state to its new partition──► staging ──proof──► TARGET
                      └─────logs, sources, schemas───────────────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from statecore.errors import CheckpointError
from statecore.queries.copying.clone import clone
from statecore.queries.copying.layout import commit, lay_out
from statecore.queries.copying.staging import Staging, staged
from statecore.queries.job.query_file import Build, load_query
from statecore.queries.progress import Done, Report, quiet, steps, uncounted
from statecore.queries.providers import rocksdb
from statecore.queries.providers.hdfs import tables as hdfs
from statecore.queries.providers.state_rows import state_rows
from statecore.queries.proving.attempts import after_attempt, check_attempt
from statecore.queries.proving.digests import StoreDigest, digests
from statecore.queries.proving.proof import Proof, check_counted, check_explained, check_same_logs, check_same_state
from statecore.queries.proving.trial import trial_restart
from statecore.queries.reading.checkpoint import ROCKSDB, SparkCheckpoint, open_checkpoint, require_unchanged
from statecore.queries.reading.logs import UniqueIds
from statecore.queries.reading.origin import origin_of, write_origin
from statecore.queries.reading.refusals import refuse
from statecore.queries.reading.source_logs import require_whole_sources
from statecore.queries.rows.placement import placed
from statecore.queries.session import query_session

_SOURCE, _TRIAL, _ATTEMPTED, _CARRIED = "source", "trial", "attempted", "carried"


@dataclass(frozen=True, slots=True)
class RescaleResult:
    """A rescaled checkpoint, proven.

    Attributes:
        path: URL of the checkpoint that it was made from.
        target: URL of the new one.
        partitions_before: Number of state partitions there.
        partitions_after: Number of state partitions here.
        pending: The batch that is logged and not committed, which the query repeats first; None without one.
        proof: The proof.

    """

    path: str
    target: str
    partitions_before: int
    partitions_after: int
    pending: int | None
    proof: Proof


def rescale(
    path: str,
    target: str,
    partitions: int,
    query: str | Path | Build | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    report: Report = quiet,
) -> RescaleResult:
    """Write a checkpoint of a query anew, for another number of state partitions, and prove that it is right.

    Args:
        path: The query's ``checkpointLocation``: a local folder, or ``s3://bucket/prefix``. It is only read.
        target: Where the new checkpoint appears, whole or not at all.
        partitions: Its number of state partitions.
        query: A file that defines ``build(spark, settings)``, or such a function, for a trial restart; None skips it.
        settings: The settings that ``build`` gets.
        spark: A session on this machine; None starts one.
        report: Called with the number of steps done, and of all.

    Raises:
        CheckpointRefusedError: The checkpoint, or the number, is not covered; or the target exists.
        CheckpointDamagedError: A file of the checkpoint is missing or not whole.
        NotProvenError: The new checkpoint could not be proven right; it was removed.
        StorageError: The storage fails.

    """
    checkpoint = open_checkpoint(path)
    refuse(checkpoint, partitions)
    build = load_query(query) if isinstance(query, str | Path) else query
    stores = sum(len(operator.stores) for operator in checkpoint.operators)
    done = steps(report, 3 * stores + 2)
    with staged(target, checkpoint.url) as staging:
        attempt = staging.folder.parent
        names = {
            str(attempt / _SOURCE): checkpoint.url,
            str(attempt / _ATTEMPTED): checkpoint.url,
            str(attempt / _CARRIED): staging.target,
            staging.url: staging.target,
        }
        with _named(names):
            clone(checkpoint, str(attempt / _SOURCE))
            source = open_checkpoint(str(attempt / _SOURCE))
            require_whole_sources(source)
            session = spark or query_session()
            done()
            lay_out(source, staging, partitions)
            before, ids = _carry(session, source, staging, partitions, done)
            commit(source, staging, ids)
            made = open_checkpoint(staging.url)
            check_same_logs(source, made)
            after = digests(session, made, done)
            check_same_state(before, after)
            with after_attempt(source, attempt / _ATTEMPTED) as ahead:
                if ahead is not None:
                    attempted, _ = _carry(session, ahead, staging, partitions, uncounted)
                    check_attempt(session, attempted, made, attempt / _CARRIED)
            if build is not None:
                trial_restart(session, staging.url, build, settings or {}, attempt / _TRIAL, before=after)
            require_unchanged(checkpoint)
            write_origin(staging.store, origin_of(checkpoint, partitions))
            done()
    return RescaleResult(
        path=checkpoint.url,
        target=staging.target,
        partitions_before=checkpoint.partitions,
        partitions_after=partitions,
        pending=checkpoint.pending,
        proof=Proof(checkpoint.batch, tuple(after), restart=build is not None),
    )


@contextmanager
def _named(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors name the checkpoints that the user knows, not the working copies."""
    try:
        yield
    except CheckpointError as error:
        message = str(error)
        for place, name in names.items():
            message = message.replace(place, name)
        raise type(error)(message) from error


def _carry(
    spark: SparkSession, source: SparkCheckpoint, staging: Staging, partitions: int, done: Done
) -> tuple[list[StoreDigest], UniqueIds | None]:
    """Check the state after a batch and write it; return its digests, and the ids of the new files in format 2."""
    before = digests(spark, source, done)
    check_counted(source, before)
    for each in before:
        check_explained(each)
    return before, _write_state(spark, source, staging, partitions, done)


def _write_state(
    spark: SparkSession, source: SparkCheckpoint, staging: Staging, partitions: int, done: Done
) -> UniqueIds | None:
    """Write all rows of state to their new partitions; return the ids of the new files, in checkpoint format 2."""

    def place(rows: DataFrame) -> DataFrame:
        done()
        return placed(rows, partitions)

    if source.provider == ROCKSDB:
        return rocksdb.rewrite(spark, source.url, staging.url, source.batch, partitions, place)
    for operator in source.operators:
        for store in operator.stores:
            rows = place(state_rows(spark, source, operator, store))
            with rocksdb.spark_failures(staging.url):
                hdfs.write_store(rows, staging.url, store, source.version, partitions, source.conf)
    return None
