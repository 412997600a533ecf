"""Operator state in files: elements by offset."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statecore.errors import StateTypeError
from statecore.model import parse_type
from statecore.snapshot.operator_files import decode_elements, elements_table, encode_elements, stored_elements

# The machine may be busy; slowness proves nothing here.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@unhurried
@given(st.lists(st.tuples(st.integers(-9, 9), st.none() | st.text(max_size=3)), min_size=1, max_size=20), st.data())
def test_elements_are_read_by_their_offsets_in_the_order_asked_for(
    elements: list[tuple[int, Any]], data: st.DataObject
) -> None:
    written = encode_elements(elements_table(elements, parse_type("struct<a:bigint,b:string>").arrow(), "s"))
    offsets = data.draw(st.lists(st.integers(0, len(elements) - 1)))
    assert decode_elements(written, offsets) == [elements[offset] for offset in offsets]


def test_an_offset_beyond_the_file_is_an_error_and_no_element() -> None:
    data = encode_elements(elements_table([1, 2], pa.int64(), "s"))
    with pytest.raises(IndexError):
        decode_elements(data, [2])


def test_an_element_that_does_not_fit_is_named_with_its_state() -> None:
    with pytest.raises(StateTypeError, match=r"operator state 'rejects'.*expected elements of type int64"):
        elements_table([1, "x"], pa.int64(), "rejects")


def test_elements_as_stored_are_those_that_a_restore_gives() -> None:
    table = elements_table([{"b": "x"}, (1, None)], parse_type("struct<a:bigint,b:string>").arrow(), "s")
    stored = stored_elements(table)
    assert stored == decode_elements(encode_elements(table), [0, 1]) == [(None, "x"), (1, None)]
    assert stored[0].b == "x"
