"""Live state into files and back: of every kind, with and without time to live and windows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import StateError
from statecore.model import (
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    StateKind,
    StateTtlConfig,
    ValueStateDescriptor,
    canonical_key,
    key_encoder,
    key_group_range,
)
from statecore.model.values import map_key_type, value_type
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import (
    decode_base,
    decode_changelog,
    encode_base,
    encode_changelog,
    key_schema,
    rows_table,
)
from statecore.snapshot.live_rows import (
    apply_rows,
    base_rows,
    changelog_rows,
    count_rows,
    count_state,
    drop_expired,
    one_row_per_scope,
)
from statecore.snapshot.manifest import FieldRef, FileKind, KeyedFile, StateSchema, SubtaskState
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import apply_keyed_files
from statecore.state import HeapKeyedStateBackend, StateTable, TableSchema
from statecore.state.tables import NamespacedKey, Window, joined_scope
from statecore.state.timers import new_table
from statecore.testing import ManualClock
from tests.support.examples import examples
from tests.support.handmade import manifest, operator

# The machine may be busy; slowness proves nothing here.
KEY_TYPES = ["string", "array<double>"]
FIELDS = [("k", KEY_TYPES[0]), ("n", KEY_TYPES[1])]
GROUPS = 16
ALL = KeyGroupRange(0, GROUPS - 1)

TYPES = {
    StateKind.VALUE: "struct<a:bigint,b:array<string>>",
    StateKind.LIST: "struct<a:bigint,b:array<string>>",
    StateKind.MAP: "map<array<double>,struct<a:bigint,b:array<string>>>",
    StateKind.REDUCING: "decimal(10,2)",
    StateKind.AGGREGATING: "map<string,bigint>",
    StateKind.TIMERS: "bigint",
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "struct<a:bigint,b:array<string>>": st.tuples(
        st.none() | st.integers(-9, 9), st.none() | st.lists(st.none() | st.text("ab", max_size=2), max_size=2)
    ),
    "decimal(10,2)": st.decimals(-99, 99, places=2),
    "map<string,bigint>": st.dictionaries(st.text("ab", max_size=2), st.none() | st.integers(-9, 9), max_size=2),
}
numbers = st.lists(st.sampled_from([math.nan, 0.0, -0.0, 1.5]), max_size=2)
keys = st.tuples(st.none() | st.text("ab", max_size=1), st.none() | numbers).map(lambda k: canonical_key(k, KEY_TYPES))
windows = st.none() | st.sampled_from([Window(0, 60), Window(60, 120), Window(-(2**63), 2**63 - 1)])

schemas = st.builds(
    lambda kind, stamped, windowed: TableSchema(kind, TYPES[kind], stamped and kind is not StateKind.TIMERS, windowed),
    st.sampled_from(list(TYPES)),
    st.booleans(),
    st.booleans(),
)


def group_of(key: Any) -> int:
    """Return the key group of a key: any will do, as long as it is always the same."""
    return len(repr(key)) % GROUPS


def cells(schema: TableSchema, ddl: str, *, none: bool = False) -> st.SearchStrategy[Any]:
    values = VALUES[ddl].map(value_type(ddl).conform)
    values = st.none() | values if none else values
    return st.tuples(values, st.integers(0, 99)) if schema.stamped else values


def contents(schema: TableSchema) -> st.SearchStrategy[Any]:
    """What is stored for one scope; containers may be empty."""
    if schema.kind is StateKind.TIMERS:
        return st.sets(st.integers(-9, 9), max_size=3)
    if schema.kind is StateKind.LIST:
        return st.lists(cells(schema, schema.type), max_size=3)
    if schema.kind is StateKind.MAP:
        return st.dictionaries(map_keys, entry(schema), max_size=3)
    return cells(schema, schema.type)


map_keys = numbers.map(map_key_type("array<double>"))


def entry(schema: TableSchema) -> st.SearchStrategy[Any]:
    return cells(schema, TYPES[StateKind.VALUE], none=True)


@st.composite
def tables(draw: st.DrawFn) -> StateTable:
    schema = draw(schemas)
    table = empty(schema)
    for key, window in draw(st.lists(st.tuples(keys, windows if schema.windowed else st.none()), max_size=12)):
        table.groups[group_of(key)][joined_scope(key, window)] = draw(contents(schema))
    return table


def empty(schema: TableSchema) -> StateTable:
    return HeapKeyedStateBackend(GROUPS, ALL, ManualClock()).restored_table("s", schema)


def change(draw: st.DrawFn, table: StateTable) -> None:
    """Write to a table as the handles do, and note it as they do."""
    scopes = st.builds(joined_scope, keys, windows if table.windowed else st.none())
    there = [scope for rows in table.groups.values() for scope in rows]
    if there:
        scopes = scopes | st.sampled_from(there)
    for scope in draw(st.lists(scopes, max_size=8)):
        key_group = group_of(scope.key if isinstance(scope, NamespacedKey) else scope)
        rows = table.groups[key_group]
        what = draw(st.sampled_from(["replace", "clear", "entries"]))
        if what == "entries" and table.kind is StateKind.MAP:
            entries = rows.setdefault(scope, {})
            for map_key in draw(st.lists(map_keys | st.sampled_from([*entries, ()]), max_size=3)):
                if draw(st.booleans()):
                    entries[map_key] = draw(entry(table.schema))
                    removed = False
                else:
                    entries.pop(map_key, None)
                    removed = True
                if scope not in table.changed[key_group]:
                    notes = table.changed_entries[key_group].setdefault(scope, {})
                    notes[map_key] = notes.get(map_key, False) or removed
            continue
        if what == "clear":
            rows.pop(scope, None)
        else:
            rows[scope] = draw(contents(table.schema))
        table.written[key_group].append(scope)
        table.changed_entries[key_group].pop(scope, None)


def held(tables: Iterable[StateTable]) -> dict[int, dict[Any, Any]]:
    """What tables hold together, without what is as good as not there; each scope is in one of them."""
    found: dict[int, dict[Any, Any]] = {}
    for table in tables:
        containers = table.kind in (StateKind.LIST, StateKind.MAP, StateKind.TIMERS)
        for key_group, rows in table.groups.items():
            kept = {scope: stored for scope, stored in rows.items() if stored or not containers}
            assert not kept.keys() & found.get(key_group, {}).keys()
            if kept:
                found.setdefault(key_group, {}).update(kept)
    return dict(sorted(found.items()))


def types(value: Any) -> Any:
    """The types of a value at every depth."""
    if isinstance(value, dict):
        return dict, [(types(key), types(item)) for key, item in value.items()]
    if isinstance(value, tuple | list):
        return type(value), [types(item) for item in value]
    return type(value)


def base_of(table: StateTable) -> bytes:
    return encode_base(rows_table(base_rows(table), key_schema(FIELDS), table.schema, "s"))


def changelog_of(table: StateTable) -> bytes:
    return encode_changelog(rows_table(changelog_rows(table), key_schema(FIELDS), table.schema, "s"))


@given(tables())
def test_what_a_base_gives_back_is_what_was_there_down_to_every_type(table: StateTable) -> None:
    restored = empty(table.schema)
    apply_rows(restored, decode_base(base_of(table), ALL), range(GROUPS), key_encoder(KEY_TYPES))
    assert held([restored]) == held([table])
    assert types(held([restored])) == types(held([table]))


@given(tables())
def test_rows_are_counted_as_a_base_has_them(table: StateTable) -> None:
    counted = Counter({group: count for group in range(GROUPS) if (count := count_rows(table, group))})
    assert counted == Counter(base_rows(table).key_groups)
    empty_containers = sum(stored in ([], set()) for rows in table.groups.values() for stored in rows.values())
    assert count_state(table) == counted.total() + empty_containers


@given(st.data())
def test_a_changelog_brings_an_older_base_up_to_date(data: st.DataObject) -> None:
    newer = data.draw(tables())
    base = base_of(newer)
    data.draw(st.composite(lambda draw: change(draw, newer))())
    restored = empty(newer.schema)
    encode = key_encoder(KEY_TYPES)
    apply_rows(restored, decode_base(base, ALL), range(GROUPS), encode)
    apply_rows(restored, decode_changelog(changelog_of(newer), ALL), range(GROUPS), encode)
    assert held([restored]) == held([newer])
    assert (restored.changed, restored.changed_entries) == ({}, {})


@examples(50)
@given(st.data(), st.integers(1, GROUPS), st.integers(1, GROUPS))
def test_any_split_of_key_groups_over_files_and_subtasks_restores_the_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, old: int, new: int
) -> None:
    store = CheckpointStore.at(str(tmp_path_factory.mktemp("store")))
    whole = data.draw(tables())
    before = deepcopy_of(whole)
    data.draw(st.composite(lambda draw: change(draw, whole))())
    subtasks = []
    for index in range(old):
        own = key_group_range(GROUPS, old, index)
        keyed = [written(store, f"{index}-base", FileKind.BASE, base_of(part(before, own)), own)]
        keyed.append(written(store, f"{index}-log", FileKind.CHANGELOG, changelog_of(part(whole, own)), own))
        subtasks.append(SubtaskState(keyed=tuple(keyed)))
    schema = whole.schema
    state = StateSchema(
        name="s", scope="keyed", kind=schema.kind, type=schema.type, stamped=schema.stamped, windowed=schema.windowed
    )
    of_old = operator(subtasks, (state,), tuple(FieldRef(name=name, type=ddl) for name, ddl in FIELDS))
    rescaled = rescale_by_reference(manifest(parallelism=old, max_parallelism=GROUPS, operators=(of_old,)), new)
    restored = []
    for index, subtask in enumerate(rescaled.operators[0].subtasks):
        own = key_group_range(GROUPS, new, index)
        backend = HeapKeyedStateBackend(GROUPS, own, ManualClock())
        apply_keyed_files(backend, store, rescaled.operators[0], subtask.keyed, dict.fromkeys(own, 0))
        assert all(key_group in own for key_group in backend.tables["s"].groups)
        restored.append(backend.tables["s"])
    assert held(restored) == held([whole])


def deepcopy_of(table: StateTable) -> StateTable:
    copy = empty(table.schema)
    copy.groups.update(deepcopy(dict(table.groups), {id(math.nan): math.nan}))
    return copy


def part(table: StateTable, own: KeyGroupRange) -> StateTable:
    made = empty(table.schema)
    made.groups.update({group: rows for group, rows in table.groups.items() if group in own})
    made.written.update({group: list(scopes) for group, scopes in table.changed.items() if group in own})
    made.changed_entries.update({group: of for group, of in table.changed_entries.items() if group in own})
    return made


def written(store: CheckpointStore, path: str, kind: FileKind, data: bytes, own: KeyGroupRange) -> KeyedFile:
    file = store.write_file(path, data)
    return KeyedFile(file=file, state="s", kind=kind, token="t", key_groups=(own.start, own.end), rows=0)


def test_a_changelog_of_a_map_holds_the_entries_that_changed_alone() -> None:
    table = empty(TableSchema(StateKind.MAP, "map<string,bigint>"))
    key = ("a", None)
    table.groups[3][key] = {f"k{n}": n for n in range(1000)}
    table.changed_entries[3][key] = {"k1": False, "gone": True}
    rows = changelog_rows(table)
    assert sorted(zip(rows.map_keys or (), rows.values, rows.deleted or (), strict=True)) == [
        ("gone", None, True),
        ("k1", 1, False),
    ]


def test_a_map_replaced_whole_is_removed_before_its_entries_are_written() -> None:
    table = empty(TableSchema(StateKind.MAP, "map<string,bigint>"))
    table.groups[3]["a", None] = {"x": 1}
    table.written[3].append(("a", None))
    rows = changelog_rows(table)
    assert (rows.map_keys, rows.values, rows.deleted) == ([None, "x"], [None, 1], [True, False])


def test_none_is_a_value_of_an_entry_and_of_an_accumulator_and_no_removal() -> None:
    for kind, ddl, stored in [(StateKind.MAP, "map<string,bigint>", {"x": None}), (StateKind.AGGREGATING, "int", None)]:
        table = empty(TableSchema(kind, ddl))
        table.groups[3]["a", None] = stored
        table.written[3].append(("a", None))
        restored = empty(table.schema)
        apply_rows(restored, decode_changelog(changelog_of(table), ALL), {3}, key_encoder(KEY_TYPES))
        assert dict(restored.groups) == {3: {("a", None): stored}}


def test_a_namespace_that_is_no_window_is_refused_with_its_state() -> None:
    table = empty(TableSchema(StateKind.VALUE, "bigint", windowed=True))
    table.groups[3][joined_scope(("a", None), "session-1")] = 1
    with pytest.raises(StateError, match=r"found the namespace 'session-1' in state 's'; expected None or a window.*;"):
        base_rows(table)


def test_timers_are_written_sorted() -> None:
    table = empty(TableSchema(StateKind.TIMERS, "bigint"))
    table.groups[3]["a", None] = {30, -10, 20}
    assert base_rows(table).values == [[-10, 20, 30]]


def expiring(kind: StateKind, *, cleanup: bool) -> StateTable:
    ttl = StateTtlConfig(ttl=timedelta(milliseconds=10), cleanup_full_snapshot=cleanup)
    descriptor, stored = {
        StateKind.VALUE: (ValueStateDescriptor("s", "bigint", ttl), (1, 5)),
        StateKind.LIST: (ListStateDescriptor("s", "bigint", ttl), [(1, 5), (2, 6)]),
        StateKind.MAP: (MapStateDescriptor("s", "string", "bigint", ttl), {"x": (1, 5), "y": (2, 6)}),
    }[kind]
    table = StateTable("s", kind, descriptor.type_ddl(), stamped=True, descriptor=descriptor)
    table.groups[3]["a", None] = stored
    table.groups[3]["b", None] = deepcopy(stored)
    return table


@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.LIST, StateKind.MAP])
def test_expired_state_leaves_memory_with_the_full_snapshot_where_that_was_asked_for(kind: StateKind) -> None:
    for cleanup, now_ms, left in [(True, 14, 2), (True, 16, 0), (False, 16, 2)]:
        table = expiring(kind, cleanup=cleanup)
        drop_expired(table, now_ms)
        assert len(table.groups[3]) == left
        assert len(set(base_rows(table).keys)) == left
    table = expiring(kind, cleanup=True)
    drop_expired(table, 15)
    assert (
        dict(table.groups[3])
        == {
            StateKind.VALUE: {},
            StateKind.LIST: {("a", None): [(2, 6)], ("b", None): [(2, 6)]},
            StateKind.MAP: {("a", None): {"y": (2, 6)}, ("b", None): {"y": (2, 6)}},
        }[kind]
    )


@given(tables())
def test_as_people_read_it_a_table_has_one_row_per_scope_and_no_timestamps(table: StateTable) -> None:
    rows = base_rows(one_row_per_scope(table))
    assert rows.timestamps is rows.map_keys is None
    scopes = [(key, window) for key, window in zip(rows.keys, rows.windows or [None] * len(rows.keys), strict=True)]
    assert len(scopes) == len(set(scopes))
    assert {joined_scope(*scope) for scope in scopes} >= {s for of in held([table]).values() for s in of}


def test_timers_that_were_looked_at_before_a_changelog_came_fire_in_order_all_the_same() -> None:
    newer: Any = new_table("t", TableSchema(StateKind.TIMERS, "bigint"))
    encode = key_encoder(KEY_TYPES)
    newer.register(3, ("a", None), 20)
    base = decode_base(base_of(newer), ALL)
    newer.clear_changes()
    newer.delete(3, ("a", None), 20)
    newer.register(3, ("a", None), 30)
    newer.register(4, joined_scope(("b", None), Window(0, 60)), 10)
    changes = decode_changelog(changelog_of(newer), ALL)

    restored: Any = new_table("t", TableSchema(StateKind.TIMERS, "bigint"))
    apply_rows(restored, base, {3, 4}, encode)
    assert list(restored.due(0)) == []
    apply_rows(restored, changes, {3, 4}, encode)
    assert list(restored.due(99)) == [
        (10, 4, joined_scope(("b", None), Window(0, 60))),
        (30, 3, ("a", None)),
    ]


@given(st.lists(st.lists(st.tuples(st.sampled_from("pr"), st.integers(0, 4)), max_size=8), max_size=4))
def test_a_restored_map_has_its_entries_in_the_order_of_the_live_one(epochs: list[list[tuple[str, int]]]) -> None:
    """Else a function that takes the first entry would go on differently after a kill."""
    descriptor = MapStateDescriptor("s", "int", "int")
    live = HeapKeyedStateBackend(GROUPS, ALL, ManualClock())
    state = live.get_map_state(descriptor)
    restored = empty(TableSchema(StateKind.MAP, descriptor.type_ddl()))
    for number, operations in enumerate(epochs):
        live.set_current_key(("a",), 3)
        for operation, user_key in operations:
            if operation == "p":
                state.put(user_key, number)
            else:
                state.remove(user_key)
        apply_rows(restored, changelog_rows(live.tables["s"]), range(GROUPS), lambda key: key)
        live.clear_changes()
        assert list(restored.groups[3].get(("a",), {}).items()) == list(state.items())
