"""Operator state in files: elements by offset."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import DistributionMode
from statecore.errors import StateTypeError
from statecore.model import parse_type
from statecore.snapshot.operator_files import decode_elements, elements_table, encode_elements

# The machine may be busy; slowness proves nothing here.
SPLIT, UNION, BROADCAST = DistributionMode.SPLIT, DistributionMode.UNION, DistributionMode.BROADCAST
PAIR = "struct<a:bigint,b:string>"


@given(st.lists(st.tuples(st.integers(-9, 9), st.none() | st.text(max_size=3)), min_size=1, max_size=20), st.data())
def test_elements_are_read_by_their_offsets_in_the_order_asked_for(
    elements: list[tuple[int, Any]], data: st.DataObject
) -> None:
    written = encode_elements(elements_table(elements, parse_type(PAIR).arrow(), "s"))
    offsets = data.draw(st.lists(st.integers(0, len(elements) - 1)))
    assert decode_elements(written, offsets, PAIR, SPLIT) == [elements[offset] for offset in offsets]


def test_an_offset_beyond_the_file_is_an_error_and_no_element() -> None:
    data = encode_elements(elements_table([1, 2], pa.int64(), "s"))
    with pytest.raises(IndexError):
        decode_elements(data, [2], "bigint", SPLIT)


def test_an_element_that_does_not_fit_is_named_with_its_state() -> None:
    with pytest.raises(StateTypeError, match=r"operator state 'rejects'.*expected elements of type int64"):
        elements_table([1, "x"], pa.int64(), "rejects")


def test_structs_are_read_as_rows() -> None:
    data = encode_elements(elements_table([(1, "x")], parse_type(PAIR).arrow(), "s"))
    assert decode_elements(data, [0], PAIR, SPLIT)[0].b == "x"


@pytest.mark.parametrize(
    ("ddl", "entries"),
    [
        ("map<string,bigint>", {"a": 1, "b": None}),
        ("map<string,bigint>", {}),
        ("map<double,string>", {math.nan: "nan", 0.0: "zero"}),
        ("map<array<int>,string>", {(1, 2): "x", (): "y"}),
        ("map<struct<a:int,b:array<int>>,array<string>>", {(1, (2,)): ["x", None]}),
    ],
)
def test_a_broadcast_map_is_one_element_and_is_found_by_its_keys_again(ddl: str, entries: dict[Any, Any]) -> None:
    table = elements_table([entries], parse_type(ddl).arrow(), "rules")
    assert table.num_rows == 1
    (read,) = decode_elements(encode_elements(table), [0], ddl, BROADCAST)
    assert read == entries
    assert all(read[key] == value for key, value in entries.items())


@pytest.mark.parametrize("mode", [SPLIT, UNION])
@pytest.mark.parametrize(
    ("ddl", "entries"),
    [
        ("map<double,int>", {math.nan: 1, float("nan"): 2, -0.0: 3}),
        ("map<string collate UTF8_LCASE,int>", {"A": 1, "a": 2}),
        ("map<string,int>", {"b": 1, "a": None}),
    ],
)
def test_a_map_that_is_an_element_of_a_list_comes_back_as_it_was_added(
    mode: DistributionMode, ddl: str, entries: dict[Any, Any]
) -> None:
    data = encode_elements(elements_table([{}, entries], parse_type(ddl).arrow(), "s"))
    assert list(map(repr, decode_elements(data, [1, 0], ddl, mode))) == [repr(entries), "{}"]
