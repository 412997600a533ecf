"""What a look-up of a key finds is what a restore of everything finds, whatever the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import ConfigurationError
from statecore.model import KeyGroupRange, StateKind, StateVisibility, UpdateType, key_group_for
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import KeyedRows, encode_base, encode_changelog, key_schema, rows_table
from statecore.snapshot.live_rows import base_rows, one_row_per_scope
from statecore.snapshot.lookup import keyed_states, parse_key, state_of_key
from statecore.snapshot.manifest import FieldRef, FileKind, KeyedFile, StateSchema, SubtaskState, TtlRef
from statecore.snapshot.restore import apply_keyed_files, table_schema
from statecore.state import HeapKeyedStateBackend, Window
from statecore.testing import ManualClock
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
        assert {each.state.name for each in found} == {state.name for state in STATES}
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


@pytest.mark.parametrize(
    ("ddl", "text", "value"),
    [
        ("string", "Ünï 🦀", "Ünï 🦀"),
        ("bigint", "-5", -5),
        ("boolean", "true", True),
        ("double", "-0.0", 0.0),
        ("decimal(9,2)", "1.10", "1.10"),
        ("date", "2024-02-29", "2024-02-29"),
        ("timestamp", "2024-02-29 12:00:00Z", "2024-02-29 12:00:00+00:00"),
    ],
)
def test_a_key_is_read_from_text(ddl: str, text: str, value: Any) -> None:
    one = operator([], (), (FieldRef(name="k", type=ddl),))
    (found,) = parse_key(one, [text])
    assert found == value or str(found) == value


@pytest.mark.parametrize(
    ("fields", "texts", "message"),
    [
        (("int",), ["1", "2"], r"found the key \['1', '2'\].*a value for each of \(k0 int\)"),
        ((), ["1"], r"expected none, because it has no keyed state"),
        (("int",), ["one"], r"found 'one' for the key column k0; expected a value of type int"),
        (("array<int>",), ["[1]"], r"found '\[1\]' for the key column k0; expected a value of type array<int>"),
    ],
)
def test_a_text_that_is_no_key_is_refused(fields: tuple[str, ...], texts: list[str], message: str) -> None:
    one = operator([], (), tuple(FieldRef(name=f"k{n}", type=ddl) for n, ddl in enumerate(fields)))
    with pytest.raises(ConfigurationError, match=message):
        parse_key(one, texts)
