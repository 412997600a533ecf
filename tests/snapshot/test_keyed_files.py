"""Keyed state in files: bases and changelogs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statecore.errors import StateTypeError
from statecore.model import KeyGroupRange
from statecore.snapshot.keyed_files import (
    DELETE,
    KeyedRows,
    base_table,
    changelog_table,
    decode_base,
    decode_changelog,
    encode_base,
    encode_changelog,
    key_schema,
    stored_type,
    stored_values,
)

# The machine may be busy; slowness proves nothing here.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

KEYS = key_schema([("k", "string"), ("n", "bigint")])
ALL = KeyGroupRange(0, 127)
VALUE = stored_type("value", "struct<a:bigint,b:array<string>>")


@st.composite
def keyed_rows(draw: st.DrawFn, *, deletes: bool) -> KeyedRows:
    value = st.tuples(st.none() | st.integers(-9, 9), st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3))
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 127),
                st.tuples(st.none() | st.text(max_size=3), st.none() | st.integers(-9, 9)),
                (value | st.just(DELETE)) if deletes else value,
            ),
            max_size=30,
        )
    )
    rows.sort(key=lambda row: row[0])
    return KeyedRows([key for _, key, _ in rows], [group for group, _, _ in rows], [value for *_, value in rows])


def within(rows: KeyedRows, wanted: KeyGroupRange) -> KeyedRows:
    kept = [row for row in zip(rows.keys, rows.key_groups, rows.values, strict=True) if row[1] in wanted]
    return KeyedRows([k for k, _, _ in kept], [g for _, g, _ in kept], [v for *_, v in kept])


ranges = st.tuples(st.integers(0, 127), st.integers(0, 127)).map(lambda ends: KeyGroupRange(min(ends), max(ends)))


@unhurried
@given(keyed_rows(deletes=False), ranges)
def test_a_base_gives_back_the_rows_of_any_range_of_key_groups(rows: KeyedRows, wanted: KeyGroupRange) -> None:
    assert decode_base(encode_base(base_table(rows, KEYS, VALUE, "s")), wanted) == within(rows, wanted)


@unhurried
@given(keyed_rows(deletes=True), ranges)
def test_a_changelog_gives_back_upserts_and_deletes_of_any_range(rows: KeyedRows, wanted: KeyGroupRange) -> None:
    assert decode_changelog(encode_changelog(changelog_table(rows, KEYS, VALUE, "s")), wanted) == within(rows, wanted)


MANY, GROUPS = 300_000, 100


@pytest.fixture(scope="module")
def many_row_groups() -> bytes:
    rows = KeyedRows([(str(n), n) for n in range(MANY)], [n * GROUPS // MANY for n in range(MANY)], list(range(MANY)))
    return encode_base(base_table(rows, KEYS, pa.int64(), "s"))


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
    data = encode_base(base_table(rows, key_schema([("k", ddl)]), pa.int64(), "s"))
    assert decode_base(data, KeyGroupRange(2, 4)).values == [2, 3, 4]
    assert decode_base(data, ALL).keys == keys


def test_a_base_is_a_table_that_any_engine_reads() -> None:
    rows = KeyedRows([("a", 1), ("b", 2)], [3, 4], [[1, 2], [3]])
    table = pq.read_table(pa.BufferReader(encode_base(base_table(rows, KEYS, stored_type("list", "bigint"), "s"))))
    assert table.to_pydict() == {"k": ["a", "b"], "n": [1, 2], "_key_group": [3, 4], "_value": [[1, 2], [3]]}
    assert table.schema.field("_key_group").type == pa.int32()


@pytest.mark.parametrize("make_table", [base_table, changelog_table])
@pytest.mark.parametrize(
    ("kind", "ddl", "good", "bad"),
    [
        ("value", "bigint", 1, 1.5),
        ("value", "map<string,bigint>", {"a": 1}, ["a"]),
        ("list", "bigint", [1], [1, "x"]),
        ("value", "struct<a:int>", (1,), (1, 2)),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_state_and_key(
    make_table: Any, kind: str, ddl: str, good: Any, bad: Any
) -> None:
    rows = KeyedRows([("a", 1), ("culprit", 2), ("c", 3)], [1, 2, 3], [good, bad, good])
    with pytest.raises(StateTypeError) as raised:
        make_table(rows, KEYS, stored_type(kind, ddl), "running_total")
    message = str(raised.value)
    assert repr(bad) in message
    assert "'running_total'" in message
    assert "('culprit', 2)" in message
    assert f"expected a value of type {stored_type(kind, ddl)}" in message


def test_a_flipped_byte_in_a_page_is_noticed_when_it_is_read(many_row_groups: bytes) -> None:
    damaged = bytearray(many_row_groups)
    damaged[1000] ^= 0xFF
    with pytest.raises(OSError, match=r".+"):
        decode_base(bytes(damaged), ALL)


def test_values_as_stored_are_those_that_a_restore_gives() -> None:
    rows = KeyedRows([("a", 1), ("b", 2), ("c", 3)], [1, 2, 3], [{"b": ["x"]}, DELETE, (1, ("y",))])
    table = changelog_table(rows, KEYS, VALUE, "s")
    stored = stored_values(table)
    assert stored == decode_changelog(encode_changelog(table), ALL).values == [(None, ["x"]), DELETE, (1, ["y"])]
    assert stored[0].b == ["x"]
