"""Tries a job: Spark builds its sources, and all operators run one empty epoch into a scratch store.

Nothing of it is visible: no source is read, no sink is called, and state is not read, but only its schemas.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from statecore.model import StateKind, parse_row
from statecore.model.job_parts import JobPart
from statecore.runtime.driver.checks import check_keys, check_restorable, check_sources
from statecore.runtime.driver.dataflow import source_descriptions
from statecore.runtime.driver.query_settings import query_settings
from statecore.runtime.epoch.dataflow import read_sources, source_columns
from statecore.runtime.epoch.lineage import Lineage
from statecore.runtime.epoch.operator import merged_schemas
from statecore.runtime.epoch.subtasks import Ran, Subtasks
from statecore.runtime.job import Job
from statecore.runtime.sinks import StagedEpoch
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import KeyedRows, encode_changelog, key_schema, rows_table
from statecore.snapshot.manifest import FileKind, KeyedFile, Manifest, OperatorState, StateSchema, SubtaskState
from statecore.snapshot.restore import describe_key, table_schema
from statecore.snapshot.resume_point import ResumePoint
from statecore.state.process import fires_timers
from statecore.storage import FileStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PARALLELISM = 1
# Without rows, timers and state, their numbers do not matter.
_EPOCH = _NOW_MS = 0


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Stands in for a sink: rows would be staged in the scratch store, and nothing is published."""

    def staging(self, job_store: FileStore) -> FileStore:
        return job_store

    def publish(self, staged: StagedEpoch) -> None:
        raise AssertionError("a trial publishes nothing")


def try_job(spark: SparkSession, plan: Job, folder: Path, restored: Manifest | None = None) -> list[JobPart]:
    """Try a job; return its parts.

    Args:
        spark: A session with what the sources need.
        plan: The job.
        folder: An empty folder for what the epoch writes.
        restored: The epoch that the job would go on from: its operators, sources, keys and the types of its state must
            be those of the job, or such as the job can convert.

    Raises:
        JobDefinitionError: A source cannot be built, or columns are missing or have wrong types.
        StateMigrationError: The job cannot take up the state.
        Exception: A function fails when it is opened; Spark's error has the function's in its text.

    """
    records = read_sources(spark, plan.sources, None)
    store = CheckpointStore.at(str(folder))
    if restored is not None:
        check_restorable(restored, [operator.uid for operator in plan.operators], restored.max_parallelism)
        check_sources(restored, [source.name for source in plan.sources])
        check_keys(restored, plan.operators)
        restored = _emptied(store, restored)
    tried = copy.copy(plan)
    tried.operators = [
        replace(operator, sinks=[replace(binding, sink=_Scratch()) for binding in operator.sinks])
        for operator in plan.operators
    ]
    path = None if restored is None else store.manifest_path(restored.lineage, restored.epoch)
    lineage = Lineage(store, ResumePoint(_EPOCH, restored, path), generation=0, on_first_commit=lambda: None)
    groups = _max_parallelism(tried) if restored is None else restored.max_parallelism
    subtasks = Subtasks(tried, lineage, _PARALLELISM, groups, allow_non_restored_state=False)
    with query_settings(spark, plan):
        ran = subtasks.run(_no_rows(spark, records.schema), _EPOCH, _NOW_MS)
    return [*_sources(plan, records), *_operators(plan, ran)]


def _no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return an epoch without rows, as an RDD, so that Spark does not prune the plan of an empty table."""
    return spark.createDataFrame(spark.sparkContext.parallelize([], 1), schema)


def _max_parallelism(plan: Job) -> int:
    """Return a number of key groups that is enough for operators that fix their parallelism."""
    return max([_PARALLELISM, *(operator.parallelism or 1 for operator in plan.operators)])


def _emptied(store: CheckpointStore, manifest: Manifest) -> Manifest:
    """Return a manifest with the schemas of its state and no rows: each keyed state has one file without any."""
    operators = tuple(_emptied_operator(store, each, manifest.max_parallelism) for each in manifest.operators)
    return msgspec.structs.replace(manifest, operators=operators, parallelism=_PARALLELISM)


def _emptied_operator(store: CheckpointStore, operator: OperatorState, max_parallelism: int) -> OperatorState:
    keys = key_schema((field.name, field.type) for field in operator.key_fields)
    # No worker has it in memory from an earlier trial.
    token = uuid.uuid4().hex
    files = tuple(
        KeyedFile(
            file=store.write_file(f"restored/{operator.uid}/{state.name}-{token}.arrow", _empty_file(keys, state)),
            state=state.name,
            kind=FileKind.CHANGELOG,
            token=token,
            key_groups=(0, max_parallelism - 1),
            rows=0,
        )
        for state in operator.states
        if state.scope == "keyed"
    )
    return msgspec.structs.replace(operator, subtasks=(SubtaskState(keyed=files),))


def _empty_file(keys: pa.Schema, state: StateSchema) -> bytes:
    none: Sequence[None] = ()
    rows = KeyedRows((), (), none, windows=none, map_keys=none, timestamps=none, deleted=())
    return encode_changelog(rows_table(rows, keys, table_schema(state), state.name))


def _sources(plan: Job, records: DataFrame) -> Iterator[JobPart]:
    does, has = source_descriptions(records, plan), source_columns(records, plan.sources)
    for source, reads, columns in zip(plan.sources, does, has, strict=True):
        yield JobPart("source", source.name, reads, columns)


def _operators(plan: Job, ran: Ran) -> Iterator[JobPart]:
    for operator in plan.operators:
        keys = ran.specs[operator.uid].key_fields
        does = type(operator.function).__name__ + (f" by {describe_key(keys)}" if keys else "")
        states = merged_schemas((), [commit.states for commit in ran.commits[operator.uid]])
        has = [_described(state) for state in states if state.kind is not StateKind.TIMERS]
        has += ["timers"] if fires_timers(operator.function) else []
        yield JobPart("operator", operator.uid, does, ", ".join(has))
        for binding in operator.sinks:
            columns = ", ".join(f"{field.name} {field.type.ddl()}" for field in parse_row(binding.schema))
            yield JobPart("sink", binding.name, type(binding.sink).__name__, columns)


def _described(state: StateSchema) -> str:
    return f"{state.name}: {state.kind} of {state.type}"
