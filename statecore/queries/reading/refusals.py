"""Refuses checkpoints that cannot be rescaled, with the reason and the remedy."""

from __future__ import annotations

from collections.abc import Iterator

from statecore.errors import CheckpointRefusedError
from statecore.queries.reading.checkpoint import PROVIDER_CLASS, PROVIDERS, SparkCheckpoint
from statecore.queries.reading.logs import SHUFFLE_PARTITIONS, STATE_PARTITIONS
from statecore.queries.reading.operators import (
    GROUPS,
    JOIN,
    KINDS,
    LIMIT,
    REAL_TIME_AGGREGATION,
    TRANSFORM,
    StatefulOperator,
)

ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
STRICT_DISTRIBUTION = "spark.sql.streaming.statefulOperator.useStrictDistribution"
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
GROUPS_FORMAT = "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion"

# What Spark assumes for a setting that an old query has not logged.
_OLD_ENCODING = "unsaferow"
_OLD_STRICT_DISTRIBUTION = "false"
_OLD_JOIN_FORMAT = _OLD_GROUPS_FORMAT = "1"

_JOIN_FORMATS = {"hdfs": ("2",), "rocksdb": ("2", "3")}

_NEW = "start the query with a new checkpointLocation"


def refuse(checkpoint: SparkCheckpoint, partitions: int | None = None) -> None:
    """Refuse a checkpoint that cannot be rescaled.

    Args:
        checkpoint: The checkpoint.
        partitions: The requested number of state partitions; None checks the checkpoint alone.

    Raises:
        CheckpointRefusedError: It cannot be rescaled; the message has the reason and the remedy.

    """
    for reason in _reasons(checkpoint, partitions):
        raise CheckpointRefusedError(reason)


def refusal_of(checkpoint: SparkCheckpoint) -> str | None:
    """Return why a checkpoint cannot be rescaled; None if it can."""
    return next(_reasons(checkpoint, None), None)


def _reasons(checkpoint: SparkCheckpoint, partitions: int | None) -> Iterator[str]:
    if not checkpoint.offsets[checkpoint.batch].metadata:
        yield _reason(
            "a query in continuous processing, which has no state",
            "a query of micro-batches with state",
            "restart the query with more cores: it needs no rescale",
        )
    if not checkpoint.operators:
        yield _reason(
            f"no stateful operator in {checkpoint.url}",
            "a query with state",
            f"restart the query with another {SHUFFLE_PARTITIONS}: a query without state needs no rescale",
        )
    yield from _unfinished(checkpoint)
    for operator in checkpoint.operators:
        yield from _operator(checkpoint, operator)
    yield from _settings(checkpoint)
    yield from _numbers(checkpoint, partitions)


def _unfinished(checkpoint: SparkCheckpoint) -> Iterator[str]:
    """Refuse an unfinished repartition by Spark itself: its batch is logged, but its state is incomplete."""
    if checkpoint.pending is None:
        return
    pending = checkpoint.offsets[checkpoint.pending]
    changed = [
        key for key in (SHUFFLE_PARTITIONS, STATE_PARTITIONS) if pending.conf.get(key) != checkpoint.conf.get(key)
    ]
    if pending.control is not None or changed:
        yield _reason(
            f"batch {checkpoint.pending} of an unfinished repartition by Spark",
            "an uncommitted batch of the query, or none",
            "finish the repartition with Spark, or restore the checkpoint from before it",
        )


def _operator(checkpoint: SparkCheckpoint, operator: StatefulOperator) -> Iterator[str]:
    what = f"operator {operator.number} of {checkpoint.url}"
    if operator.metadata_version == 0:
        yield _reason(
            f"no metadata of {what}, as Spark before 4.0 leaves it",
            "the operator's name and stores in state/<operator>/_metadata",
            "run one batch of the query on Spark 4.3, which writes them, then try again",
        )
    elif operator.metadata_version > 1 and not operator.schemas:
        yield _reason(
            f"no schema files in the metadata of {what}, as builds of Spark before the release of 4.0 leave it",
            "their paths, without which Spark 4.3 does not read the state",
            "run one batch of the query on Spark 4.3, which writes them, then try again",
        )
    elif operator.name == LIMIT:
        yield _reason(
            f"a limit ({what})",
            "an operator that keeps state by key",
            f"drop the limit and {_NEW}; it runs in one task",
        )
    elif operator.name == REAL_TIME_AGGREGATION:
        yield _reason(
            f"an aggregation in real-time mode ({what})", "a query of micro-batches", f"{_NEW} and another trigger"
        )
    elif operator.name not in KINDS:
        yield _reason(
            f"the operator {operator.name!r} ({what})",
            f"one of {', '.join(KINDS)}",
            f"use a release of statecore that knows it, or {_NEW}",
        )
    elif operator.name == JOIN:
        yield from _join(checkpoint, what)
    elif operator.name in GROUPS and checkpoint.conf.get(GROUPS_FORMAT, _OLD_GROUPS_FORMAT) == _OLD_GROUPS_FORMAT:
        yield _reason(
            f"{operator.name} with state format {_OLD_GROUPS_FORMAT} ({what}), which Spark 4.3 may fail to load",
            "format 2",
            f"{_NEW} and {GROUPS_FORMAT}=2",
        )
    elif operator.name in TRANSFORM and checkpoint.provider == "hdfs":
        yield _reason(f"transformWithState on the HDFS-backed provider ({what})", "RocksDB", _NEW)


def _join(checkpoint: SparkCheckpoint, what: str) -> Iterator[str]:
    state_format = checkpoint.conf.get(JOIN_FORMAT, _OLD_JOIN_FORMAT)
    covered = _JOIN_FORMATS.get(checkpoint.provider, ())
    if state_format not in covered:
        yield _reason(
            f"a stream-stream join of state format {state_format} on the provider {checkpoint.provider} ({what})",
            f"format {' or '.join(covered or ('2',))}",
            f"{_NEW} and {JOIN_FORMAT}={covered[-1] if covered else 2}",
        )


def _settings(checkpoint: SparkCheckpoint) -> Iterator[str]:
    conf = checkpoint.conf
    if checkpoint.provider not in PROVIDERS.values():
        yield _reason(
            f"the state store provider {checkpoint.provider}",
            f"one of {', '.join(PROVIDERS)} in {PROVIDER_CLASS}",
            f"{_NEW} and one of these",
        )
    encoding = conf.get(ENCODING, _OLD_ENCODING)
    if encoding != _OLD_ENCODING:
        yield _reason(
            f"state encoded as {encoding} ({ENCODING})", f"state encoded as {_OLD_ENCODING}", f"{_NEW} and without it"
        )
    strict = conf.get(STRICT_DISTRIBUTION, _OLD_STRICT_DISTRIBUTION)
    if strict.lower() != "true":
        where = "not logged, by a query that Spark before 3.3 began" if STRICT_DISTRIBUTION not in conf else strict
        yield _reason(
            f"{STRICT_DISTRIBUTION} {where}",
            "true: otherwise, the place of a row depends on the plan",
            f"{_NEW}, on Spark 3.3 or newer",
        )


def _numbers(checkpoint: SparkCheckpoint, partitions: int | None) -> Iterator[str]:
    numbers = sorted({store.partitions for operator in checkpoint.operators for store in operator.stores})
    if len(numbers) > 1:
        yield _reason(
            f"operators with {' and '.join(map(str, numbers))} state partitions in {checkpoint.url}",
            "one number for all of the query",
            "restore the checkpoint from a clone or a backup",
        )
    logged = checkpoint.conf.get(STATE_PARTITIONS) or checkpoint.conf.get(SHUFFLE_PARTITIONS)
    if numbers and logged is not None and logged != str(numbers[0]):
        yield _reason(
            f"{numbers[0]} state partitions in the metadata of {checkpoint.url}, and {logged} in its offset log",
            "the same number in both",
            "restore the checkpoint from a clone or a backup",
        )
    if partitions is None:
        return
    if partitions < 1:
        yield _reason(f"{partitions} state partitions", "at least 1", "ask for another number")
    if partitions == checkpoint.partitions:
        yield _reason(
            f"{partitions} state partitions in {checkpoint.url} already",
            "another number",
            "ask for another number, or take a copy with `statecore checkpoint clone`",
        )


def _reason(found: str, expected: str, remedy: str) -> str:
    return f"found {found}; expected {expected}; {remedy}"
