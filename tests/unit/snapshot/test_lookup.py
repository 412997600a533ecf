"""What a look-up of a key finds is what a restore of everything finds, whatever the files."""

from __future__ import annotations

from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import ConfigurationError
from statecore.model import KeyGroupRange, StateKind, StateVisibility, UpdateType, canonical_key, key_group_for
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import KeyedRows, encode_base, encode_changelog, footer_of, key_schema, rows_table
from statecore.snapshot.live_rows import base_rows, one_row_per_scope
from statecore.snapshot.lookup import keyed_states, parse_key, state_of_key
from statecore.snapshot.manifest import FieldRef, FileKind, FilePart, KeyedFile, StateSchema, SubtaskState, TtlRef
from statecore.snapshot.restore import apply_keyed_files, table_schema
from statecore.state import HeapKeyedStateBackend, Window
from statecore.state.tables import GLOBAL_WINDOW
from statecore.testing import ManualClock
from statecore.windows.sessions import SESSIONS
from tests.support.every_kind import GROUPS, KEYS, STATES, TYPES, tables, written
from tests.support.examples import examples
from tests.support.handmade import manifest, operator

ROUTES = StateSchema(name="routes", scope="keyed", kind=StateKind.MAP, type="map<string,bigint>", windowed=True)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_kind_of_state_of_each_key_is_found(tmp_path: Path, parallelism: int) -> None:
    store = CheckpointStore.at(str(tmp_path))
    made = written(store, parallelism)
    (one,) = made.operators
    states = keyed_states(one)
    assert [state.name for state in states] == [state.name for state in STATES]
    expected = {state: base_rows(one_row_per_scope(tables(state, GROUPS))) for state in STATES}
    for key in KEYS:
        found = state_of_key(store, made, one, key, states)
        assert [each.state.name for each in found] == [state.name for state in states]
        for each in found:
            rows = expected[each.state]
            windows = rows.windows or [None] * len(rows.keys)
            own = [at for at, other in enumerate(rows.keys) if other == key and windows[at] == each.window]
            assert [rows.values[at] for at in own] == [each.value]


def test_a_key_that_was_never_seen_has_no_state(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    made = written(store, 3)
    assert state_of_key(store, made, made.operators[0], ("nobody", 1), keyed_states(made.operators[0])) == []


def test_state_that_has_expired_is_left_out(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    made = written(store, 2)
    ttl = TtlRef(
        ttl_ms=5, update_type=UpdateType.ON_CREATE_AND_WRITE, visibility=StateVisibility.NEVER_RETURN_EXPIRED,
        cleanup_full_snapshot=False, cleanup_incremental=None,
    )  # fmt: skip
    (one,) = made.operators
    # Key number n was written at 1000 + n.
    made = msgspec.structs.replace(made, batch_timestamp_ms=1_010)
    (fresh,) = keyed_states(one, "fresh")
    fresh = msgspec.structs.replace(fresh, ttl=ttl)
    found = {n for n, key in enumerate(KEYS) if state_of_key(store, made, one, key, [fresh])}
    assert found == set(range(6, 12))


# Entries of a map in windows: added, removed, all removed; in bases and changelogs, of few keys.
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(FileKind),
        st.lists(
            st.tuples(
                st.integers(0, 3), st.sampled_from([None, Window(0, 10)]), st.sampled_from([None, "a", "b"]),
                st.integers(0, 9), st.booleans(),
            ),
            max_size=12,
        ),
    ),
    max_size=4,
)  # fmt: skip


@examples(150)
@given(CHANGES)
def test_bases_and_changelogs_give_what_a_whole_restore_gives(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[FileKind, list[Any]]]
) -> None:
    store = CheckpointStore.at(str(tmp_path_factory.mktemp("store")))
    files = [_file(store, number, kind, rows) for number, (kind, rows) in enumerate(changes)]
    fields = tuple(FieldRef(name=name, type=ddl) for name, ddl in zip("kn", TYPES, strict=True))
    one = operator([SubtaskState(keyed=tuple(files))], (ROUTES,), fields)
    made = manifest(parallelism=1, max_parallelism=GROUPS, operators=(one,))
    backend = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), ManualClock())
    apply_keyed_files(backend, store, one, files, dict.fromkeys(range(GROUPS), 0))
    whole = base_rows(one_row_per_scope(backend.restored_table("routes", table_schema(ROUTES))))
    windows = whole.windows or []
    for key in KEYS[:4]:
        found = {each.window: each.value for each in state_of_key(store, made, one, key, [ROUTES])}
        own = [at for at, other in enumerate(whole.keys) if other == key]
        assert found == {windows[at]: whole.values[at] for at in own}


def _file(store: CheckpointStore, number: int, kind: FileKind, changes: list[Any]) -> KeyedFile:
    is_base = kind is FileKind.BASE
    rows = [(KEYS[n], key_group_for(KEYS[n], TYPES, GROUPS), *rest) for n, *rest in changes]
    if is_base:
        # An entry is there once.
        rows = list({(key, window, entry): (key, group, window, entry, value, False)
                     for key, group, window, entry, value, _ in rows if entry is not None}.values())  # fmt: skip
    rows.sort(key=lambda row: row[1])
    deleted = [gone or entry is None for _, _, _, entry, _, gone in rows]
    keyed = KeyedRows(
        keys=[row[0] for row in rows],
        key_groups=[row[1] for row in rows],
        values=[None if gone else row[4] for row, gone in zip(rows, deleted, strict=True)],
        windows=[row[2] for row in rows],
        map_keys=[row[3] for row in rows],
        deleted=None if is_base else deleted,
    )
    table = rows_table(keyed, key_schema(zip("kn", TYPES, strict=True)), table_schema(ROUTES), "routes")
    data = encode_base(table) if is_base else encode_changelog(table)
    file = store.write_file(f"{number}", data)
    return KeyedFile(file=file, state="routes", kind=kind, token="t", key_groups=(0, GROUPS - 1), rows=len(rows))


UTC_ZONE = "tzinfo=datetime.timezone.utc"


@pytest.mark.parametrize(
    ("ddl", "text", "shown"),
    [
        ("string", "Ünï, 🦀", "'Ünï, 🦀'"),
        ("string", "[1]", "'1'"),
        ("string", "[null]", "None"),
        ("string", '["a,b"]', "'a,b'"),
        ("bigint", "-5", "-5"),
        ("boolean", "true", "True"),
        ("double", "-0.0", "0.0"),
        ("double", "nan", "nan"),
        ("decimal(9,2)", "1.10", "Decimal('1.10')"),
        ("binary", "00ff", r"b'\x00\xff'"),
        ("date", "2024-02-29", "datetime.date(2024, 2, 29)"),
        ("timestamp", "2024-02-29 12:00:00", "datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.timezone.utc)"),
        (
            "timestamp",
            "2024-02-29 13:00:00+01:00",
            "datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.timezone.utc)",
        ),
    ],
)
def test_a_key_is_read_from_text(ddl: str, text: str, shown: str) -> None:
    one = operator([], (), (FieldRef(name="k", type=ddl),))
    (found,) = parse_key(one, text)
    assert repr(found) == shown


def test_a_key_of_several_columns_is_a_list_or_has_commas() -> None:
    one = operator([], (), (FieldRef(name="k", type="string"), FieldRef(name="n", type="int")))
    assert parse_key(one, "a, 1") == parse_key(one, '["a", 1]') == ("a", 1)
    assert parse_key(one, '["a, b", null]') == ("a, b", None)


@pytest.mark.parametrize(
    ("fields", "text", "message"),
    [
        (("int", "int"), "1", r"found the key '1'.*a value for each of \(k0 int, k1 int\)"),
        ((), "1", r"expected none, because it has no keyed state"),
        (("int",), "one", r"found 'one' for the key column k0; expected a value of type int"),
        (("date",), "0000-01-01", r"found '0000-01-01' for the key column k0"),
        (
            ("timestamp",),
            "0001-01-01 00:00:00+10:00",
            r"found '0001-01-01 00:00:00\+10:00' for the key column k0; expected a value of type",
        ),
        (("binary",), "xyz", r"found 'xyz' for the key column k0; expected a value of type binary"),
        (("array<int>",), "[1]", r"found the key column k0 of type array<int>.*read_savepoint"),
    ],
)
def test_a_text_that_is_no_key_is_refused(fields: tuple[str, ...], text: str, message: str) -> None:
    one = operator([], (), tuple(FieldRef(name=f"k{n}", type=ddl) for n, ddl in enumerate(fields)))
    with pytest.raises(ConfigurationError, match=message):
        parse_key(one, text)


NAN = float("nan")


@pytest.mark.parametrize(
    ("ddl", "stored", "text"),
    [
        ("double", [-0.0, 1.5, NAN, None], ["0", "1.5", "NaN", "[null]"]),
        ("string", ["", "a", None], ["", "a", "[null]"]),
        ("decimal(9,2)", [Decimal("1.10"), None], ["1.1", "[null]"]),
        ("binary", [b"", bytes([255])], ["", "ff"]),
    ],
)
def test_keys_of_all_types_are_found_as_they_are_stored(
    tmp_path: Path, ddl: str, stored: list[Any], text: list[str]
) -> None:
    total = StateSchema(name="total", scope="keyed", kind=StateKind.VALUE, type="bigint")
    groups = [key_group_for(canonical_key((key,), [ddl]), [ddl], GROUPS) for key in stored]
    ordered = sorted(zip(groups, range(len(stored)), strict=True))
    rows = KeyedRows([(stored[n],) for _, n in ordered], [group for group, _ in ordered], [n for _, n in ordered])
    store = CheckpointStore.at(str(tmp_path))
    data = encode_base(rows_table(rows, key_schema([("k", ddl)]), table_schema(total), "total"))
    file = KeyedFile(
        file=store.write_file("base", data), state="total", kind=FileKind.BASE, token="t",
        key_groups=(0, GROUPS - 1), rows=len(stored),
    )  # fmt: skip
    one = operator([SubtaskState(keyed=(file,))], (total,), (FieldRef(name="k", type=ddl),))
    made = manifest(parallelism=1, max_parallelism=GROUPS, operators=(one,))
    found = [state_of_key(store, made, one, parse_key(one, each), [total])[0].value for each in text]
    assert found == list(range(len(stored)))


def test_of_a_large_base_only_the_row_groups_of_the_key_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = StateSchema(name="total", scope="keyed", kind=StateKind.VALUE, type="bigint")
    keys = [sha256(f"{n}".encode()).hexdigest()[:24] for n in range(150_000)]
    ordered = sorted((key_group_for((key,), ["string"], GROUPS), key) for key in keys)
    rows = KeyedRows([(key,) for _, key in ordered], [group for group, _ in ordered], list(range(len(keys))))
    store = CheckpointStore.at(str(tmp_path))
    data = encode_base(rows_table(rows, key_schema([("k", "string")]), table_schema(total), "total"))
    # Subtasks share the file of one before them, as after a rescale by reference.
    shared = store.write_file("base", data)
    files = [
        KeyedFile(
            file=shared, state="total", kind=FileKind.BASE, token="t", key_groups=(4 * number, 4 * number + 3),
            rows=len(keys), footer=footer_of(data),
        )
        for number in range(4)
    ]  # fmt: skip
    one = operator([SubtaskState(keyed=(file,)) for file in files], (total,), (FieldRef(name="k", type="string"),))
    made = manifest(parallelism=4, max_parallelism=GROUPS, operators=(one,))
    read: list[int] = []
    parts = CheckpointStore.read_parts

    def counted(self: CheckpointStore, path: str, wanted: list[FilePart]) -> bytes:
        read.extend(part.size for part in wanted)
        return parts(self, path, wanted)

    monkeypatch.setattr(CheckpointStore, "read_parts", counted)
    for at in (0, 70_000, 149_999):
        assert [each.value for each in state_of_key(store, made, one, (ordered[at][1],), [total])] == [at]
    assert len(data) > 1024 * 1024 and sum(read) < 3 * 0.7 * len(data)


def test_a_session_has_its_own_bounds_and_a_global_window_none(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    total = StateSchema(name="sum", scope="keyed", kind=StateKind.REDUCING, type="bigint", windowed=True)
    sessions = StateSchema(name=SESSIONS.name, scope="keyed", kind=StateKind.LIST, type=SESSIONS.type_ddl())
    group = key_group_for(("a",), ["string"], GROUPS)
    # Of the first session its first record's window, of the second all.
    windows = [Window(0, 10), Window(40, 50), GLOBAL_WINDOW]
    rows = {
        total: KeyedRows([("a",)] * 3, [group] * 3, [1, 2, 3], windows=windows),
        sessions: KeyedRows([("a",)], [group], [[(0, 24, 0, 10), (40, 50, 40, 50)]]),
    }
    files = []
    for state, held in rows.items():
        data = encode_base(rows_table(held, key_schema([("k", "string")]), table_schema(state), state.name))
        file = store.write_file(state.name, data)
        files.append(
            KeyedFile(file=file, state=state.name, kind=FileKind.BASE, token="t", key_groups=(0, GROUPS - 1), rows=1)
        )
    one = operator([SubtaskState(keyed=tuple(files))], (total, sessions), (FieldRef(name="k", type="string"),))
    made = manifest(parallelism=1, max_parallelism=GROUPS, operators=(one,))
    found = {each.value: each.window for each in state_of_key(store, made, one, ("a",), [total])}
    assert found == {1: Window(0, 24), 2: Window(40, 50), 3: None}
