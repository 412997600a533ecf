"""Keyed state in files: bases and changelogs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import StateTypeError
from statecore.model import KeyGroupRange, StateKind
from statecore.snapshot.keyed_files import (
    KeyedRows,
    decode_base,
    decode_changelog,
    encode_base,
    encode_changelog,
    key_schema,
    rows_table,
)
from statecore.state import TableSchema, Window

# The machine may be busy; slowness proves nothing here.
KEYS = key_schema([("k", "string"), ("n", "bigint")])
ALL = KeyGroupRange(0, 127)
STRUCTS = TableSchema(StateKind.VALUE, "struct<a:bigint,b:array<string>>")
NUMBERS = TableSchema(StateKind.VALUE, "bigint")


@st.composite
def keyed_rows(draw: st.DrawFn, *, changelog: bool) -> KeyedRows:
    value = st.tuples(st.none() | st.integers(-9, 9), st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3))
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 127),
                st.tuples(st.none() | st.text(max_size=3), st.none() | st.integers(-9, 9)),
                value,
                st.booleans(),
            ),
            max_size=30,
        )
    )
    rows.sort(key=lambda row: row[0])
    return KeyedRows(
        [key for _, key, _, _ in rows],
        [group for group, *_ in rows],
        [None if gone and changelog else value for _, _, value, gone in rows],
        deleted=[gone for *_, gone in rows] if changelog else None,
    )


def within(rows: KeyedRows, wanted: KeyGroupRange) -> KeyedRows:
    kept = [index for index, group in enumerate(rows.key_groups) if group in wanted]
    return KeyedRows(
        [rows.keys[i] for i in kept],
        [rows.key_groups[i] for i in kept],
        [rows.values[i] for i in kept],
        deleted=None if rows.deleted is None else [rows.deleted[i] for i in kept],
    )


ranges = st.tuples(st.integers(0, 127), st.integers(0, 127)).map(lambda ends: KeyGroupRange(min(ends), max(ends)))


@given(keyed_rows(changelog=False), ranges)
def test_a_base_gives_back_the_rows_of_any_range_of_key_groups(rows: KeyedRows, wanted: KeyGroupRange) -> None:
    assert decode_base(encode_base(rows_table(rows, KEYS, STRUCTS, "s")), wanted) == within(rows, wanted)


@given(keyed_rows(changelog=True), ranges)
def test_a_changelog_gives_back_upserts_and_deletes_of_any_range(rows: KeyedRows, wanted: KeyGroupRange) -> None:
    assert decode_changelog(encode_changelog(rows_table(rows, KEYS, STRUCTS, "s")), wanted) == within(rows, wanted)


MANY, GROUPS = 300_000, 100


@pytest.fixture(scope="module")
def many_row_groups() -> bytes:
    rows = KeyedRows([(str(n), n) for n in range(MANY)], [n * GROUPS // MANY for n in range(MANY)], list(range(MANY)))
    return encode_base(rows_table(rows, KEYS, NUMBERS, "s"))


def test_a_base_has_row_groups_small_enough_to_skip_and_sorted_by_key_group(many_row_groups: bytes) -> None:
    metadata = pq.ParquetFile(pa.BufferReader(many_row_groups)).metadata
    statistics = [metadata.row_group(i).column(2).statistics for i in range(metadata.num_row_groups)]

    assert metadata.schema.column(2).path == "_key_group"
    assert metadata.num_row_groups >= 4
    assert all(entry.has_min_max for entry in statistics)
    assert [entry.min for entry in statistics] == sorted(entry.min for entry in statistics)


def test_row_groups_outside_of_the_range_are_not_read(many_row_groups: bytes) -> None:
    # Whoever reads the last row group meets damage there; the others are readable, so they are read alone.
    metadata = pq.ParquetFile(pa.BufferReader(many_row_groups)).metadata
    last = metadata.row_group(metadata.num_row_groups - 1)
    damaged = bytearray(many_row_groups)
    for index in range(metadata.num_columns):
        column = last.column(index)
        start = column.dictionary_page_offset or column.data_page_offset
        damaged[start : start + column.total_compressed_size] = b"\xee" * column.total_compressed_size
    first_damaged_group = last.column(2).statistics.min

    read = decode_base(bytes(damaged), KeyGroupRange(10, 19))

    assert read.values == list(range(MANY * 10 // GROUPS, MANY * 20 // GROUPS))
    with pytest.raises(OSError, match=r".+"):
        decode_base(bytes(damaged), KeyGroupRange(first_damaged_group, first_damaged_group))


@pytest.mark.parametrize("ddl", ["struct<a:bigint,b:bigint>", "struct<a:bigint,b:string>", "array<bigint>"])
def test_a_key_of_several_columns_inside_does_not_mislead_the_statistics(ddl: str) -> None:
    keys = {"array<bigint>": [([900, n],) for n in range(9)]}.get(
        ddl, [((n, 900 if ddl.endswith("bigint>") else "x"),) for n in range(9)]
    )
    rows = KeyedRows(keys, list(range(9)), list(range(9)))
    data = encode_base(rows_table(rows, key_schema([("k", ddl)]), NUMBERS, "s"))
    assert decode_base(data, KeyGroupRange(2, 4)).values == [2, 3, 4]
    assert decode_base(data, ALL).keys == keys


def test_a_base_is_a_table_that_any_engine_reads() -> None:
    rows = KeyedRows([("a", 1), ("b", 2)], [3, 4], [[1, 2], [3]])
    lists = TableSchema(StateKind.LIST, "bigint")
    table = pq.read_table(pa.BufferReader(encode_base(rows_table(rows, KEYS, lists, "s"))))
    assert table.to_pydict() == {"k": ["a", "b"], "n": [1, 2], "_key_group": [3, 4], "_value": [[1, 2], [3]]}
    assert table.schema.field("_key_group").type == pa.int32()


def test_windows_entries_timestamps_and_removals_have_columns_of_their_own() -> None:
    schema = TableSchema(StateKind.MAP, "map<string,double>", stamped=True, windowed=True)
    rows = KeyedRows(
        keys=[("a", 1), ("a", 1)],
        key_groups=[3, 3],
        values=[None, 0.5],
        windows=[None, Window(0, 60_000)],
        map_keys=[None, "x"],
        timestamps=[None, 7],
        deleted=[True, False],
    )
    table = rows_table(rows, KEYS, schema, "s")
    assert table.schema.names[2:] == [
        "_key_group", "_window_start", "_window_end", "_map_key", "_value", "_timestamp_ms", "_deleted",
    ]  # fmt: skip
    assert [str(field.type) for field in table.schema][2:] == [
        "int32", "int64", "int64", "string", "double", "int64", "bool",
    ]  # fmt: skip
    assert decode_changelog(encode_changelog(table), ALL) == rows


def test_a_list_with_a_time_to_live_has_its_timestamps_beside_its_elements() -> None:
    schema = TableSchema(StateKind.LIST, "string", stamped=True)
    rows = KeyedRows([("a", 1)], [3], [["x", "y"]], timestamps=[[7, 8]])
    data = encode_base(rows_table(rows, KEYS, schema, "s"))
    assert pq.read_table(pa.BufferReader(data)).column("_timestamp_ms").to_pylist() == [[7, 8]]
    assert decode_base(data, ALL) == rows


@pytest.mark.parametrize("deleted", [None, [False] * 3], ids=["base", "changelog"])
@pytest.mark.parametrize(
    ("kind", "ddl", "good", "bad"),
    [
        (StateKind.VALUE, "bigint", 1, 1.5),
        (StateKind.VALUE, "map<string,bigint>", {"a": 1}, ["a"]),
        (StateKind.LIST, "bigint", [1], [1, "x"]),
        (StateKind.VALUE, "struct<a:int>", (1,), (1, 2)),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_state_and_key(
    deleted: list[bool] | None, kind: StateKind, ddl: str, good: Any, bad: Any
) -> None:
    rows = KeyedRows([("a", 1), ("culprit", 2), ("c", 3)], [1, 2, 3], [good, bad, good], deleted=deleted)
    with pytest.raises(StateTypeError, match="expected a value of type") as raised:
        rows_table(rows, KEYS, TableSchema(kind, ddl), "running_total")
    message = str(raised.value)
    assert repr(bad) in message
    assert "'running_total'" in message
    assert "('culprit', 2)" in message


def test_a_flipped_byte_in_a_page_is_noticed_when_it_is_read(many_row_groups: bytes) -> None:
    damaged = bytearray(many_row_groups)
    damaged[1000] ^= 0xFF
    with pytest.raises(OSError, match=r".+"):
        decode_base(bytes(damaged), ALL)
