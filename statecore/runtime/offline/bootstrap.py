"""Writes a savepoint from DataFrames: initial state for a job."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

from statecore.errors import AlreadyExistsError, ConfigurationError, ManifestError
from statecore.model import (
    DistributionMode,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateKind,
    StructType,
    parse_type,
    require_key_type,
)
from statecore.model.key_groups import check_max_parallelism, check_parallelism
from statecore.runtime.job.builder import Job
from statecore.runtime.job.loading import described, load_job
from statecore.runtime.job.plans import OperatorPlan
from statecore.runtime.offline.implied import KeyedTables, Rows, earliest_ms, implied, windows_of
from statecore.runtime.offline.query_sources import query_position, require_at
from statecore.runtime.offline.rewrite import write_bases
from statecore.runtime.offline.tables import DOMAINS
from statecore.runtime.placement import column, place
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore
from statecore.snapshot.keyed_files import MAP_KEY, TIMESTAMP, VALUE, WINDOW_END, WINDOW_START
from statecore.snapshot.manifest import (
    WRITER,
    FieldRef,
    FileRef,
    KeyedFile,
    Manifest,
    OperatorFile,
    OperatorState,
    PartitionsRef,
    SavepointInfo,
    StateSchema,
    SubtaskState,
    TtlRef,
    encode_manifest,
)
from statecore.snapshot.operator_files import ELEMENT, encode_elements
from statecore.snapshot.rescale import rescale_by_reference
from statecore.state.tables import GLOBAL_WINDOW
from statecore.windows import GlobalWindows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Tables = Mapping[StateDescriptor, tuple["DataFrame", Sequence[str]]]
_FILE = msgspec.json.Decoder(tuple[FileRef, int])
_BOUNDS = {"window_start": WINDOW_START, "window_end": WINDOW_END}


def write_savepoint(
    path: str | Path,
    operators: Mapping[str, Tables],
    max_parallelism: int,
    parallelism: int,
    *,
    job: str | Path | Callable[[Job], object],
    settings: Mapping[str, str] = MappingProxyType({}),
    timers: Mapping[str, DataFrame] = MappingProxyType({}),
    sources_from: str | None = None,
    sources: Sequence[str] = (),
) -> str:
    """Write a savepoint from DataFrames.

    A job that starts from it reads its sources from their beginning, or continues after the newest committed batch of a
    query job's checkpoint, ``sources_from``. Read the state of the same query for the DataFrames, with Spark's source
    ``statestore``, while the query is stopped.

    A DataFrame has the columns that ``read_savepoint`` returns: the key columns, then the value as one column per field
    of a struct, or as ``value``. A list state has an array there, a map state a map. Of a window function it has
    ``window_start`` and ``window_end``, too, in ms as ``bigint`` with the end exclusive; those of a session are its own
    bounds. Other columns and rows with a null value are ignored. TTL starts now.

    Windows, sessions and joins get the timers that their state needs, also of keys that never come back. A window
    within its allowed lateness fires once more; a trigger that counts records, or fires at intervals, begins anew.
    Timers of other functions are a table: one row per timer, with the key columns, and ``event_time_ms`` or
    ``processing_time_ms``, of which the other may be null.

    Args:
        path: Path or URL of the folder to write; it becomes a self-contained savepoint.
        operators: Operator uid → state descriptor → (DataFrame, key columns). The key columns have the names and the
            order of the job's ``key_by``. Empty key columns mean operator state: a ``ListStateDescriptor`` gives a
            split list, a ``MapStateDescriptor`` a broadcast map in one row.
        max_parallelism: Number of key groups of the job.
        parallelism: Number of subtasks to write the state for; a job may start at another parallelism.
        job: The job that is to start from it: a local job file, or its ``build`` function.
        settings: The job's settings.
        timers: Operator uid → DataFrame. A function with ``on_timer`` needs one, which may be empty.
        sources_from: ``checkpointLocation`` of a query that reads the job's sources; it is only read.
        sources: The job's names of that query's sources, in the query's order.

    Returns:
        URL of the folder.

    Raises:
        InvalidParallelismError: A parallelism is out of bounds.
        ConfigurationError: A DataFrame lacks a column, has one of another type, or has a key twice; the job has no such
            operator, or another key there; a table of timers is missing, or one too many; windows are not those of the
            job; or the sources are not those of the checkpoint; nothing is written.
        JobDefinitionError: ``job`` describes none.
        ManifestError: The folder already holds a savepoint.

    """
    check_max_parallelism(max_parallelism)
    check_parallelism(parallelism, max_parallelism)
    store = CheckpointStore.at(str(path))
    if store.files.size(MANIFEST) is not None:
        raise _taken(store)
    plans = _plans(job, settings, {*operators, *timers})
    now_ms = int(time.time() * 1000)
    with ExitStack() as held:
        # Check all operators before writing the first.
        prepared = [
            _Operator(plans[uid], operators.get(uid, {}), timers.get(uid), now_ms, held)
            for uid in {**operators, **timers}
        ]
        keyed = [rows for each in prepared for rows in each.keyed]
        next_event_ms, next_processing_ms = (earliest_ms(keyed, processing_time=each) for each in (False, True))
        stands = None if sources_from is None else query_position(sources_from, sources, store)
        written = tuple(each.written(store, max_parallelism, parallelism) for each in prepared)
    manifest = Manifest(
        writer=WRITER,
        job=store.files.url.rstrip("/").rsplit("/", 1)[-1],
        # One epoch before the first, in the lineage before the first; epochs count on from a query's batches.
        lineage=0,
        epoch=-1 if stands is None else stands.batch,
        generation=0,
        root=".",
        parent=None,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        batch_timestamp_ms=now_ms,
        committed_ms=now_ms,
        rows=0,
        rows_total=0,
        operators=written,
        outputs=(),
        watermark_ms=None if stands is None else stands.watermark_ms,
        next_event_timer_ms=next_event_ms,
        next_processing_timer_ms=next_processing_ms,
        sources=() if stands is None else stands.sources,
        progress=() if stands is None else stands.progress,
        savepoint=SavepointInfo(name=Path(str(path)).name, reason="made from tables", created_ms=now_ms),
    )
    if sources_from is not None and stands is not None:
        require_at(sources_from, stands.batch)
    try:
        store.files.put_if_absent(MANIFEST, encode_manifest(manifest))
    except AlreadyExistsError:
        raise _taken(store) from None
    return store.files.url


def _taken(store: CheckpointStore) -> ManifestError:
    return ManifestError(
        f"found a savepoint in {store.files.url}; expected a folder without one; choose another folder"
    )


def _plans(
    job: str | Path | Callable[[Job], object], settings: Mapping[str, str], uids: set[str]
) -> dict[str, OperatorPlan]:
    if not callable(job) and not Path(job).is_file():
        raise ConfigurationError(
            f"found no job file {job}; expected a local Python file that defines build(job); correct the path, or "
            "fetch the file first"
        )
    made = described(job, settings) if callable(job) else load_job(job, settings)
    plans = {plan.uid: plan for plan in made.operators}
    unknown = sorted(uids - plans.keys())
    if unknown:
        raise ConfigurationError(
            f"found tables for the operators {unknown}; expected some of {sorted(plans)}, the operators of the job; "
            "correct the uid"
        )
    return plans


class _Operator:
    """The checked tables of one operator.

    Each keyed state is cached until the savepoint is written, so that its source is read once and timers are those of
    the rows that are written. A source that gives other rows when it is read again is still a fault: Spark reads it
    again if it loses an executor.

    Args:
        plan: The operator.
        tables: Its states.
        timers: Its timers, or None.
        now_ms: When a time to live begins.
        held: Lets go of the DataFrames.

    Attributes:
        keyed: Its keyed state, timers included.

    """

    def __init__(
        self, plan: OperatorPlan, tables: Tables, timers: DataFrame | None, now_ms: int, held: ExitStack
    ) -> None:
        self.uid, self._plan, self._windows = plan.uid, plan, windows_of(plan.function)
        self._now_ms, self._held = now_ms, held
        self._listed: list[tuple[StateDescriptor, DataFrame]] = []
        self.key_fields: tuple[FieldRef, ...] = ()
        keyed: list[tuple[StateDescriptor, DataFrame]] = []
        for descriptor, (df, keys) in tables.items():
            if keys:
                self._take_key(f"state {descriptor.name!r} of operator {self.uid!r}", df, keys)
                keyed.append((descriptor, self._keyed_rows(descriptor, df, keys)))
            else:
                self._listed.append((descriptor, _elements(descriptor, df, self.uid)))
        if timers is not None:
            self._take_key(f"the timers of operator {self.uid!r}", timers, plan.first.key_columns)
            named = [name for name in DOMAINS if name in timers.columns and name not in plan.first.key_columns]
            # Not the given one itself, which may be held already.
            timers = self._once(timers.select(*map(column, (*plan.first.key_columns, *named))))
        if not self.key_fields and plan.first.key_columns:
            raise ConfigurationError(
                f"found no keyed state for operator {self.uid!r}; expected some, because its stream has the key "
                f"{list(plan.first.key_columns)}, and the savepoint records the key's types; give a state or timers, "
                "which may be empty"
            )
        self.keyed: list[Rows] = [(_keyed_schema(each), each[1]) for each in keyed]
        if self.key_fields:
            self.keyed += implied(KeyedTables(self.uid, plan.first.key_columns, keyed, timers), plan.function)

    def written(self, store: CheckpointStore, max_parallelism: int, parallelism: int) -> OperatorState:
        listed = [_write_elements(store, self.uid, descriptor, df) for descriptor, df in self._listed]
        one = OperatorState(
            uid=self.uid,
            key_fields=self.key_fields,
            second_key=self._second_key(),
            states=(*(schema for schema, _ in self.keyed), *map(_operator_schema, self._listed)),
            subtasks=(SubtaskState(operator=tuple(sorted(filter(None, listed), key=lambda item: item.state))),),
        )
        (spread,) = rescale_by_reference(_holding(one, max_parallelism), parallelism).operators
        files: dict[int, list[KeyedFile]] = defaultdict(list)
        keys = [field.name for field in self.key_fields]
        for schema, df in self.keyed:
            placed = place(df, keys, max_parallelism, parallelism)
            for subtask, file in write_bases(
                store, placed, f"state/{self.uid}", uuid.uuid4().hex, schema, keys, max_parallelism, parallelism
            ):
                files[subtask].append(file)
        subtasks = tuple(
            msgspec.structs.replace(state, keyed=tuple(files[index])) for index, state in enumerate(spread.subtasks)
        )
        return msgspec.structs.replace(spread, subtasks=subtasks)

    def _second_key(self) -> tuple[str, ...] | msgspec.UnsetType:
        if not self.key_fields or not self._plan.has_two_inputs or self._plan.connected is None:
            return msgspec.UNSET
        return self._plan.connected.key_columns

    def _once(self, df: DataFrame) -> DataFrame:
        self._held.callback(df.persist().unpersist)
        return df

    def _take_key(self, what: str, df: DataFrame, keys: Sequence[str]) -> None:
        _require_columns(df, keys, f"the key of {what}")
        expected = self._plan.first.key_columns
        if not expected:
            raise ConfigurationError(
                f"found the key columns {list(keys)} for {what}; expected none, because the job's stream has no key; "
                "leave keyed state and timers out"
            )
        if tuple(keys) != expected:
            raise ConfigurationError(
                f"found the key columns {list(keys)} for {what}; expected {list(expected)}, in the order of the job's "
                "key_by; rename or reorder them"
            )
        fields = tuple(FieldRef(name=name, type=_ddl(df, name)) for name in keys)
        for field in fields:
            require_key_type(parse_type(field.type))
        if self.key_fields and self.key_fields != fields:
            raise ConfigurationError(
                f"found the key {_described(fields)} for {what}; expected {_described(self.key_fields)}, the key of "
                "its other states; rename or cast the key columns"
            )
        self.key_fields = fields

    def _keyed_rows(self, descriptor: StateDescriptor, df: DataFrame, keys: Sequence[str]) -> DataFrame:
        what = f"state {descriptor.name!r} of operator {self.uid!r}"
        names = [column(name) for name in keys]
        bounds = self._bounds(df, keys, descriptor, what)
        value = _value(_stored_ddl(descriptor), df, what).alias(VALUE)
        rows = self._once(df.select(*names, *bounds.values(), value).where(F.col(VALUE).isNotNull()))
        if bounds and rows.where(F.col(WINDOW_START).isNull() | F.col(WINDOW_END).isNull()).first() is not None:
            raise ConfigurationError(
                f"found a row without bounds for {what}; expected window_start and window_end in each row; correct or "
                "remove it"
            )
        self._require_unique(rows, [*keys, *bounds], what)
        others = [*names, *map(F.col, bounds)]
        if descriptor.kind is StateKind.MAP:
            rows = rows.select(*others, F.explode(VALUE).alias(MAP_KEY, VALUE))
        if descriptor.kind is StateKind.LIST:
            rows = rows.where(F.size(VALUE) > 0)
        if _stamped(descriptor):
            stamp = F.lit(self._now_ms).cast("bigint")
            stamps = F.transform(VALUE, lambda _: stamp) if descriptor.kind is StateKind.LIST else stamp
            rows = rows.withColumn(TIMESTAMP, stamps)
        return rows

    def _bounds(self, df: DataFrame, keys: Sequence[str], descriptor: StateDescriptor, what: str) -> dict[str, Column]:
        """Return the window's bounds, by their names in a base; none of a function without windows."""
        named = [name for name in _BOUNDS if name in df.columns and name not in keys]
        if self._windows is None:
            stored = parse_type(_stored_ddl(descriptor))
            fields = {field.name for field in stored.fields} if isinstance(stored, StructType) else set()
            if named and not fields.intersection(named):
                raise ConfigurationError(
                    f"found the columns {named} for {what}; expected none, because its function is no window function; "
                    "drop them"
                )
            return {}
        if isinstance(self._windows.windows, GlobalWindows):
            whole = zip((WINDOW_START, WINDOW_END), GLOBAL_WINDOW, strict=True)
            return {alias: F.lit(bound).cast("bigint").alias(alias) for alias, bound in whole}
        if len(named) < len(_BOUNDS) or any(dict(df.dtypes)[name] != "bigint" for name in named):
            raise ConfigurationError(
                f"found the columns {[' '.join(each) for each in df.dtypes]} for {what}; expected "
                "window_start and window_end of type bigint besides the key, in ms with the end exclusive; of a "
                "timestamp, take unix_millis"
            )
        return {alias: F.col(name).alias(alias) for name, alias in _BOUNDS.items()}

    @staticmethod
    def _require_unique(rows: DataFrame, scope: Sequence[str], what: str) -> None:
        twice = rows.groupBy(*map(column, scope)).count().where("count > 1").first()
        if twice is not None:
            key = {name: twice[name] for name in scope}
            raise ConfigurationError(
                f"found the key {key} {twice['count']} times for {what}; expected each key once; "
                "aggregate the rows of a key first, into an array for a list and a map for a map"
            )


def _value(ddl: str, df: DataFrame, what: str) -> Column:
    expected = parse_type(ddl)
    if "value" not in df.columns and isinstance(expected, StructType):
        names = [field.name for field in expected.fields]
        _require_columns(df, names, what)
        value = F.struct(*(column(name) for name in names))
    else:
        _require_columns(df, ["value"], what)
        value = F.col("value")
    type_found = parse_type(df.select(value.alias(VALUE)).schema[VALUE].dataType.simpleString())
    if type_found.ddl() != expected.ddl():
        raise ConfigurationError(
            f"found values of type {type_found.ddl()} for {what}; expected {expected.ddl()}, the descriptor's type; "
            "cast the columns, or change the descriptor"
        )
    return value


def _stored_ddl(descriptor: StateDescriptor) -> str:
    ddl = descriptor.type_ddl()
    return f"array<{ddl}>" if descriptor.kind is StateKind.LIST else ddl


def _stamped(descriptor: StateDescriptor) -> bool:
    return descriptor.ttl is not None and descriptor.ttl.enabled


def _keyed_schema(item: tuple[StateDescriptor, DataFrame]) -> StateSchema:
    descriptor, df = item
    return StateSchema(
        name=descriptor.name,
        scope="keyed",
        kind=descriptor.kind,
        type=descriptor.type_ddl(),
        stamped=_stamped(descriptor),
        windowed=WINDOW_START in df.columns,
        ttl=TtlRef.of(descriptor.ttl) if descriptor.ttl is not None and descriptor.ttl.enabled else None,
    )


def _operator_schema(item: tuple[StateDescriptor, DataFrame]) -> StateSchema:
    descriptor, _ = item
    mode = _mode(descriptor)
    return StateSchema(
        name=descriptor.name,
        scope="operator",
        kind=descriptor.kind,
        type=descriptor.type_ddl(),
        strategy=descriptor.strategy if isinstance(descriptor, ListStateDescriptor) else None,
        mode=mode,
    )


def _mode(descriptor: StateDescriptor) -> DistributionMode:
    return DistributionMode.BROADCAST if isinstance(descriptor, MapStateDescriptor) else DistributionMode.SPLIT


def _elements(descriptor: StateDescriptor, df: DataFrame, uid: str) -> DataFrame:
    what = f"operator state {descriptor.name!r} of operator {uid!r}"
    if not isinstance(descriptor, ListStateDescriptor | MapStateDescriptor):
        raise ConfigurationError(
            f"found a {descriptor.kind} state without key columns for {what}; expected a list state or a broadcast "
            "map state; name the key columns if it is keyed state"
        )
    elements = df.select(_value(descriptor.type_ddl(), df, what).alias(ELEMENT)).where(F.col(ELEMENT).isNotNull())
    if isinstance(descriptor, MapStateDescriptor) and (count := elements.count()) != 1:
        raise ConfigurationError(
            f"found {count} rows for {what}; expected one row with the whole map, because every subtask gets the same "
            "map; aggregate the rows with map_from_entries"
        )
    return elements


def _write_elements(
    store: CheckpointStore, uid: str, descriptor: StateDescriptor, df: DataFrame
) -> OperatorFile | None:
    store_url, name = store.files.url, descriptor.name

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collected = [batch for batch in batches if batch.num_rows]
        if collected:
            table = pa.Table.from_batches(collected)
            path = f"state/{uid}/{uuid.uuid4().hex}-operator-{name}.arrow"
            file = CheckpointStore.at(store_url).write_file(path, encode_elements(table))
            yield pa.RecordBatch.from_pydict({"file": [msgspec.json.encode((file, table.num_rows)).decode()]})

    written = df.coalesce(1).mapInArrow(write, "file string").collect()
    if not written:
        return None
    file, rows = _FILE.decode(written[0]["file"])
    return OperatorFile(
        file=file, state=name, partitions=PartitionsRef(mode=_mode(descriptor), offsets=tuple(range(rows)))
    )


def _require_columns(df: DataFrame, names: Sequence[str], what: str) -> None:
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise ConfigurationError(
            f"found the columns {df.columns} for {what}; expected {missing} among them; select or rename them"
        )


def _ddl(df: DataFrame, name: str) -> str:
    return parse_type(df.schema[name].dataType.simpleString()).ddl()


def _described(fields: Sequence[FieldRef]) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in fields) + ")"


def _holding(operator: OperatorState, max_parallelism: int) -> Manifest:
    return Manifest(
        writer=WRITER, job="", lineage=0, epoch=0, generation=0, root=".", parent=None, parallelism=1,
        max_parallelism=max_parallelism, batch_timestamp_ms=0, committed_ms=0, rows=0, rows_total=0,
        operators=(operator,), outputs=(), progress=(),
    )  # fmt: skip
