"""Reads the state of a savepoint as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from statecore.model import DataType, Field, StructType, key_group_range, parse_type
from statecore.runtime.placement import column
from statecore.runtime.sinks.frames import rows_of
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.compaction import base_tables, whole_bases
from statecore.snapshot.keyed_files import (
    KEY_GROUP,
    VALUE,
    WINDOW_END,
    WINDOW_START,
    key_schema,
    rows_table,
    stored_fields,
)
from statecore.snapshot.live_rows import base_rows, one_row_per_scope, one_row_schema, with_session_bounds
from statecore.snapshot.manifest import Manifest, OperatorState, StateSchema
from statecore.snapshot.operator_files import ELEMENT, elements_table
from statecore.snapshot.restore import (
    NoClock,
    apply_keyed_files,
    find_operator,
    find_state,
    read_elements,
    table_schema,
)
from statecore.state import HeapKeyedStateBackend, TableSchema
from statecore.state.session_columns import SESSIONS_STATE
from statecore.state.timers import EVENT_TIMERS, PROCESSING_TIMERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DOMAINS = {"event_time_ms": EVENT_TIMERS, "processing_time_ms": PROCESSING_TIMERS}
"""The state with the timers of each column of a table of timers."""

_SUBTASK = "subtask"


def read_savepoint(spark: SparkSession, path: str | Path, uid: str, state: str) -> DataFrame:
    """Read one state of a savepoint.

    Args:
        spark: A session whose workers reach the savepoint's files.
        path: The savepoint's folder, or any manifest file.
        uid: The operator's uid.
        state: Name of the state.

    Returns:
        For keyed state, one row per key: the key columns, ``key_group``, then the value as one column per field of a
        struct, or as ``value``. A list state has an array there, a map state a map. State in windows has one row per
        key and window, with ``window_start`` and ``window_end`` (ms, end exclusive) after ``key_group``; those of a
        session are its own bounds. Expired state that is not removed yet is included. For operator state, one row per
        element: ``subtask``, then the element in the same form; a broadcast state has one row per subtask with its map.

    Raises:
        MissingFileError: There is no savepoint at ``path``.
        ManifestError: The savepoint has no such operator or state.

    """
    store, _, manifest = open_savepoint(str(path))
    operator = find_operator(manifest.operators, uid, str(path))
    schema = find_state(operator, state)
    if schema.scope == "operator":
        elements = _elements(spark, store, operator, schema)
        return elements.select(_SUBTASK, *_value_columns(ELEMENT, parse_type(schema.type), [_SUBTASK]))
    form = one_row_schema(table_schema(schema))
    reader = keyed_reader(store.files.url, manifest, operator, schema)
    rows = _per_subtask(spark, operator, reader, _columns(operator, form))
    keys = [field.name for field in operator.key_fields]
    columns = {KEY_GROUP: "key_group", WINDOW_START: "window_start", WINDOW_END: "window_end"}
    named = [F.col(name).alias(alias) for name, alias in columns.items() if name in rows.columns]
    value_type = next(field.type for field in stored_fields(form) if field.name == VALUE)
    values = _value_columns(VALUE, value_type, [*keys, *columns.values()])
    return rows.select(*(column(name) for name in keys), *named, *values)


def read_timers(spark: SparkSession, path: str | Path, uid: str) -> DataFrame:
    """Read the timers of a function of yours with ``on_timer``, as ``write_savepoint`` takes them.

    Args:
        spark: A session whose workers reach the savepoint's files.
        path: The savepoint's folder, or any manifest file.
        uid: The operator's uid.

    Returns:
        One row per timer: the key columns, then ``event_time_ms`` and ``processing_time_ms``, one of which is null.
        Timers of windows are not among them. ``write_savepoint`` takes none of windows and joins.

    Raises:
        MissingFileError: There is no savepoint at ``path``.
        ManifestError: The savepoint has no such operator.

    """
    store, _, manifest = open_savepoint(str(path))
    operator = find_operator(manifest.operators, uid, str(path))
    keys = [column(field.name) for field in operator.key_fields]
    types = [(each.name, each.type) for each in operator.key_fields] + [(name, "bigint") for name in DOMAINS]
    none = spark.range(0)
    timers = none.select(*(F.lit(None).cast(ddl).alias(name) for name, ddl in types))
    for schema in operator.states:
        if schema.name in DOMAINS.values():
            at = F.explode(VALUE)
            one = [at.alias(name) if schema.name == domain else F.lit(None).cast("bigint").alias(name)
                   for name, domain in DOMAINS.items()]  # fmt: skip
            timers = timers.union(keyed_rows(spark, store, manifest, operator, schema).select(*keys, *one))
    return timers


def keyed_rows(
    spark: SparkSession, store: CheckpointStore, manifest: Manifest, operator: OperatorState, schema: StateSchema
) -> DataFrame:
    """Return a keyed state as a DataFrame with the columns of a base file."""
    read = base_reader(store.files.url, manifest, operator, schema)
    return _per_subtask(spark, operator, read, _columns(operator, table_schema(schema)))


def _columns(operator: OperatorState, form: TableSchema) -> list[Field]:
    return [*(Field(field.name, parse_type(field.type)) for field in operator.key_fields), *stored_fields(form)]


_Reader = Callable[[int], pa.Table]


def _per_subtask(spark: SparkSession, operator: OperatorState, read: _Reader, fields: Sequence[Field]) -> DataFrame:
    subtasks = range(len(operator.subtasks))
    return rows_of(spark, subtasks, read, fields, tasks=len(subtasks))


def base_reader(store_url: str, manifest: Manifest, operator: OperatorState, schema: StateSchema) -> _Reader:
    """Return a function that reads one state of a subtask as a table with the columns of a base file."""
    merges = {each.subtask: each for each in whole_bases(manifest) if (each.uid, each.state) == (operator.uid, schema)}
    columns = pa.schema([field.arrow() for field in _columns(operator, table_schema(schema))])

    def read(subtask: int) -> pa.Table:
        if subtask not in merges:
            return columns.empty_table()
        return pa.concat_tables(base_tables(CheckpointStore.at(store_url), merges[subtask]))

    return read


def keyed_reader(store_url: str, manifest: Manifest, operator: OperatorState, schema: StateSchema) -> _Reader:
    """Return a function that reads one state of a subtask as a table with one row per key and window."""
    max_parallelism, parallelism = manifest.max_parallelism, len(operator.subtasks)

    def read(subtask: int) -> pa.Table:
        own = key_group_range(max_parallelism, parallelism, subtask)
        backend = HeapKeyedStateBackend(max_parallelism, own, NoClock())
        names = {schema.name, *([SESSIONS_STATE] if schema.windowed else [])}
        files = [item for item in operator.subtasks[subtask].keyed if item.state in names]
        every_group = dict.fromkeys(range(own.start, own.end + 1), 0)
        apply_keyed_files(backend, CheckpointStore.at(store_url), operator, files, every_group)
        table = one_row_per_scope(backend.restored_table(schema.name, table_schema(schema)))
        keys = key_schema((field.name, field.type) for field in operator.key_fields)
        return rows_table(with_session_bounds(base_rows(table), backend), keys, table.schema, schema.name)

    return read


def _elements(spark: SparkSession, store: CheckpointStore, operator: OperatorState, schema: StateSchema) -> DataFrame:
    store_url = store.files.url
    element_type = parse_type(schema.type)

    def read(subtask: int) -> pa.Table:
        files = CheckpointStore.at(store_url)
        elements = [
            element
            for item in operator.subtasks[subtask].operator
            if item.state == schema.name
            for element in read_elements(files, schema, item)
        ]
        table = elements_table(elements, element_type.arrow(), schema.name)
        return table.add_column(0, _SUBTASK, pa.array([subtask] * len(elements), pa.int32()))

    fields = [Field(_SUBTASK, parse_type("int")), Field(ELEMENT, element_type)]
    return _per_subtask(spark, operator, read, fields)


def _value_columns(name: str, value_type: DataType, taken: Sequence[str]) -> list[Column]:
    """Return one column per field of a struct unless a name is taken; otherwise one column ``value``."""
    if isinstance(value_type, StructType):
        names = [field.name for field in value_type.fields]
        if not set(names).intersection(taken):
            return [F.col(name).getField(field).alias(field) for field in names]
    return [F.col(name).alias("value")]
