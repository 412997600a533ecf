"""State of every kind, read as tables and rewritten: the rewritten savepoint restores to the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from statecore.errors import ConfigurationError, ManifestError, StateConflictError
from statecore.model import (
    DistributionMode,
    StateKind,
    ValueStateDescriptor,
    key_group_for,
    key_group_range,
    subtask_for_key_group,
)
from statecore.model.values import row_class
from statecore.runtime import read_savepoint, rewrite_savepoint, write_savepoint
from statecore.runtime.epoch.operator import merged_schemas
from statecore.runtime.messages import KEY_GROUP, SUBTASK
from statecore.runtime.offline.rewrite import base_writer
from statecore.runtime.offline.tables import base_reader, keyed_reader
from statecore.snapshot import keyed_files
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import encode_base, key_schema, rows_table
from statecore.snapshot.live_rows import base_rows
from statecore.snapshot.manifest import (
    FieldRef,
    FileKind,
    KeyedFile,
    Manifest,
    OperatorFile,
    PartitionsRef,
    StateSchema,
    SubtaskState,
)
from statecore.snapshot.operator_files import elements_table, encode_elements
from statecore.snapshot.restore import apply_keyed_files, find_state, table_schema
from statecore.state import HeapKeyedStateBackend, StateTable, Window
from statecore.state.tables import joined_scope
from statecore.testing import ManualClock
from tests.handmade import manifest, operator

TYPES = ["string", "int"]
GROUPS = 16
KEYS = [(f"k{n}", n % 3) for n in range(12)]
DAY = Window(0, 86_400_000)


def keyed(name: str, kind: StateKind, ddl: str, **form: bool) -> StateSchema:
    return StateSchema(name=name, scope="keyed", kind=kind, type=ddl, **form)


total = row_class(("n", "tags"))
# Per state what key number n holds.
STATES: dict[StateSchema, Callable[[int], Any]] = {
    keyed("total", StateKind.VALUE, "struct<n:bigint,tags:array<string>>"): lambda n: total((n, ["x", None])),
    keyed("fresh", StateKind.VALUE, "bigint", stamped=True): lambda n: (n, 1000 + n),
    keyed("last", StateKind.LIST, "string", stamped=True): lambda n: [(f"e{i}", i) for i in range(n % 3 + 1)],
    keyed("routes", StateKind.MAP, "map<string,bigint>"): lambda n: {"a": n, "b": None},
    keyed("visits", StateKind.MAP, "map<int,string>", stamped=True, windowed=True): (
        lambda n: {n: (f"v{n}", n), -1: ("w", 0)}
    ),
    keyed("sums", StateKind.REDUCING, "bigint", windowed=True): lambda n: n * n,
    keyed("means", StateKind.AGGREGATING, "struct<n:bigint,tags:array<string>>"): lambda n: total((n, [])),
    keyed("__event_timers", StateKind.TIMERS, "bigint", windowed=True): lambda n: {n, n + 100},
}
RULES = StateSchema(
    name="rules", scope="operator", kind=StateKind.MAP, type="map<string,bigint>", mode=DistributionMode.BROADCAST
)


def tables(schema: StateSchema, max_parallelism: int) -> StateTable:
    """Return the whole of a state, half of its keys in a window where it has windows."""
    form = table_schema(schema)
    table = StateTable(schema.name, form.kind, form.type, form.stamped, form.windowed)
    for n, key in enumerate(KEYS):
        window = DAY if form.windowed and n % 2 else None
        table.groups[key_group_for(key, TYPES, max_parallelism)][joined_scope(key, window)] = STATES[schema](n)
    return table


def written(store: CheckpointStore, parallelism: int) -> Manifest:
    subtasks = []
    for index in range(parallelism):
        own = key_group_range(GROUPS, parallelism, index)
        files = []
        for schema in STATES:
            table = tables(schema, GROUPS)
            for key_group in [group for group in table.groups if group not in own]:
                del table.groups[key_group]
            rows = rows_table(base_rows(table), key_schema(zip("kn", TYPES, strict=True)), table.schema, schema.name)
            file = store.write_file(f"state/{index}-{schema.name}", encode_base(rows))
            files.append(
                KeyedFile(
                    file=file, state=schema.name, kind=FileKind.BASE, token="t", key_groups=(own.start, own.end), rows=1
                )
            )
        subtasks.append(SubtaskState(keyed=tuple(files), operator=(rules_file(store, index),)))
    fields = tuple(FieldRef(name=name, type=ddl) for name, ddl in zip("kn", TYPES, strict=True))
    made = operator(subtasks, (*STATES, RULES), fields)
    return manifest(parallelism=parallelism, max_parallelism=GROUPS, operators=(made,))


def rules_file(store: CheckpointStore, index: int) -> OperatorFile:
    data = encode_elements(elements_table([{"limit": 3}], pa.map_(pa.string(), pa.int64()), "rules"))
    partitions = PartitionsRef(mode=DistributionMode.BROADCAST, offsets=(0,))
    return OperatorFile(file=store.write_file(f"state/{index}-rules", data), state="rules", partitions=partitions)


def restored(store: CheckpointStore, made: Manifest) -> dict[str, dict[int, dict[Any, Any]]]:
    """Restore every subtask and return all that they hold together."""
    found: dict[str, dict[int, dict[Any, Any]]] = {}
    for index, subtask in enumerate(made.operators[0].subtasks):
        own = key_group_range(made.max_parallelism, made.parallelism, index)
        backend = HeapKeyedStateBackend(made.max_parallelism, own, ManualClock())
        apply_keyed_files(backend, store, made.operators[0], subtask.keyed, dict.fromkeys(own, 0))
        for name, table in backend.tables.items():
            assert all(group in own for group in table.groups)
            found.setdefault(name, {}).update({group: dict(rows) for group, rows in table.groups.items()})
    return found


def expected(max_parallelism: int) -> dict[str, dict[int, dict[Any, Any]]]:
    return {schema.name: dict(tables(schema, max_parallelism).groups) for schema in STATES}


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path))


def test_columns_that_were_read_are_written_again_with_nothing_lost(store: CheckpointStore) -> None:
    before = written(store, 2)
    after = rewritten_without_spark(store, before, parallelism=3, max_parallelism=64)
    assert restored(store, before) == expected(GROUPS)
    assert restored(store, after) == expected(64)


def rewritten_without_spark(
    store: CheckpointStore, before: Manifest, *, parallelism: int, max_parallelism: int
) -> Manifest:
    """Do what the rewrite job does, with the shuffle done here."""
    old = before.operators[0]
    files: list[list[KeyedFile]] = [[] for _ in range(parallelism)]
    for schema in STATES:
        read = base_reader(store.files.url, before, old, schema)
        rows = pa.concat_tables([read(index) for index in range(before.parallelism)])
        names = rows.schema.names
        for index in range(parallelism):
            writer = base_writer(store.files.url, "state/new", "t", schema.name, names, parallelism, max_parallelism)
            for (text,) in (
                batch.column(0).to_pylist() for batch in writer(_shuffled(rows, index, parallelism, max_parallelism))
            ):
                files[index].append(msgspec.json.decode(text, type=tuple[int, KeyedFile])[1])
    made = operator([SubtaskState(keyed=tuple(keyed)) for keyed in files], old.states, old.key_fields)
    return msgspec.structs.replace(before, parallelism=parallelism, max_parallelism=max_parallelism, operators=(made,))


def _shuffled(rows: pa.Table, index: int, parallelism: int, max_parallelism: int) -> Iterator[pa.RecordBatch]:
    keys = zip(rows.column("k").to_pylist(), rows.column("n").to_pylist(), strict=True)
    groups = [key_group_for(key, TYPES, max_parallelism) for key in keys]
    placed = rows.drop_columns([keyed_files.KEY_GROUP]).append_column(KEY_GROUP, pa.array(groups, pa.int32()))
    subtasks = [subtask_for_key_group(max_parallelism, parallelism, group) for group in groups]
    placed = placed.append_column(SUBTASK, pa.array(subtasks, pa.int32()))
    yield from placed.filter(pa.array([each == index for each in subtasks])).sort_by(KEY_GROUP).to_batches()


def test_a_state_is_shown_with_one_row_per_key_and_window(store: CheckpointStore) -> None:
    before = written(store, 2)
    for schema in STATES:
        read = keyed_reader(store.files.url, before, before.operators[0], schema)
        rows = pa.concat_tables([read(index) for index in range(2)])
        assert sorted(zip(rows.column("k").to_pylist(), rows.column("n").to_pylist(), strict=True)) == sorted(KEYS)
        assert (keyed_files.WINDOW_START in rows.schema.names) == schema.windowed
        assert not {keyed_files.TIMESTAMP, keyed_files.MAP_KEY} & set(rows.schema.names)


def test_timers_are_no_state_that_can_be_asked_for() -> None:
    of_timers = operator([], tuple(STATES))
    with pytest.raises(ManifestError, match=r"found the states \['total', 'fresh',.*'means'\] .*'__event_timers'"):
        find_state(of_timers, "__event_timers")


def test_one_state_under_two_types_in_two_subtasks_is_refused() -> None:
    old, new = keyed("s", StateKind.VALUE, "int"), keyed("s", StateKind.VALUE, "bigint")
    with pytest.raises(StateConflictError, match=r"'s' as value of int in one .* value of bigint in another.*open\(\)"):
        merged_schemas((), [(old,), (new,)])


def test_what_subtasks_found_overrules_what_was_restored_and_a_window_that_one_of_them_met_counts_for_all() -> None:
    old, new = keyed("s", StateKind.VALUE, "int", windowed=True), keyed("s", StateKind.VALUE, "bigint")
    kept = keyed("kept", StateKind.LIST, "int")
    assert merged_schemas((old, kept), [(new,), ()]) == (kept, msgspec.structs.replace(new, windowed=True))
    windowed = msgspec.structs.replace(new, windowed=True)
    assert merged_schemas((), [(windowed,), (new,)]) == merged_schemas((), [(new,), (windowed,)]) == (windowed,)


@pytest.mark.spark
def test_spark_rewrites_and_reads_state_of_every_kind(spark: Any, store: CheckpointStore, tmp_path: Path) -> None:
    before = tmp_path / store.write_savepoint(written(store, 2), "before", reason="", now_ms=1)
    after = store.manifest(rewrite_savepoint(spark, before, name="after", parallelism=3, max_parallelism=64))
    assert restored(store, after) == expected(64)
    assert after.operators[0].states == (*STATES, RULES)
    shown = tmp_path / "savepoints" / "after"

    def rows(state: str) -> list[dict[str, Any]]:
        found = read_savepoint(spark, shown, "totals", state)
        return [row.asDict(recursive=True) for row in found.collect()]

    def of(n: int, state: str) -> dict[str, Any]:
        (row,) = [row for row in rows(state) if (row["k"], row["n"]) == KEYS[n]]
        return {name: value for name, value in row.items() if name not in ("k", "n", "key_group")}

    assert of(5, "fresh") == {"value": 5}
    assert of(5, "last") == {"value": ["e0", "e1", "e2"]}
    assert of(5, "routes") == {"value": {"a": 5, "b": None}}
    assert of(5, "visits") == {"window_start": 0, "window_end": 86_400_000, "value": {5: "v5", -1: "w"}}
    assert of(4, "sums") == {"window_start": None, "window_end": None, "value": 16}
    assert of(5, "total") == {"value": {"n": 5, "tags": ["x", None]}}
    assert rows("rules") == [{"subtask": index, "value": {"limit": 3}} for index in range(3)]
    assert {row["key_group"] for row in rows("sums")} == set(expected(64)["sums"])


def test_nothing_is_written_beside_a_savepoint_that_has_a_folder_of_its_own(
    spark: Any, store: CheckpointStore, tmp_path: Path
) -> None:
    rows = spark.range(10).selectExpr("cast(id as string) k", "id value")
    tables: Any = {"totals": {ValueStateDescriptor("total", "bigint"): (rows, ["k"])}}
    made = write_savepoint(tmp_path / "made", tables, 16, 2)
    before = sorted((tmp_path / "made").rglob("*"))
    with pytest.raises(ConfigurationError, match="found the self-contained savepoint"):
        rewrite_savepoint(spark, made, name="after", parallelism=4)
    assert sorted((tmp_path / "made").rglob("*")) == before
