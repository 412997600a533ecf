"""Python values in Arrow columns: read back equal, or refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.model import parse_type
from statecore.model.arrow_values import from_arrow, row_class, to_arrow

# The machine may be busy; slowness proves nothing here.
_ATOMS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "decimal(38,6)": st.decimals(-(10**32) + 1, 10**32 - 1, places=6),
    "decimal(5,2)": st.decimals(-999, 999, places=2),
    "string": st.text(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
}


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 3) -> tuple[str, st.SearchStrategy[Any]]:
    """Return a Spark type and a strategy for its values, None among them."""
    shape = draw(st.sampled_from(["atom", "list", "map", "struct"])) if depth else "atom"
    if shape == "atom":
        ddl = draw(st.sampled_from(sorted(_ATOMS)))
        values = _ATOMS[ddl]
    elif shape == "list":
        element, elements = draw(typed_values(depth - 1))
        ddl, values = f"array<{element}>", st.lists(elements, max_size=4)
    elif shape == "map":
        key = draw(st.sampled_from(["string", "bigint", "date"]))
        item, items = draw(typed_values(depth - 1))
        ddl, values = f"map<{key},{item}>", st.dictionaries(_ATOMS[key], items, max_size=4)
    else:
        fields = draw(st.lists(typed_values(depth - 1), min_size=1, max_size=3))
        names = ["a", "b c", "class"][: len(fields)]
        ddl = "struct<" + ",".join(f"`{n}`:{d}" for n, (d, _) in zip(names, fields, strict=True)) + ">"
        values = st.tuples(*(strategy for _, strategy in fields)).map(row_class(tuple(names)))
    return ddl, st.none() | values


@given(st.data())
def test_values_of_any_type_at_any_depth_are_read_back_equal(data: st.DataObject) -> None:
    ddl, strategy = data.draw(typed_values())
    values = data.draw(st.lists(strategy, max_size=6))
    arrow_type = parse_type(ddl).arrow()

    array = to_arrow(values, arrow_type)

    assert array.type == arrow_type
    assert from_arrow(array) == values
    array.validate(full=True)


@given(st.data())
def test_a_slice_and_a_chunked_array_are_read_like_the_whole(data: st.DataObject) -> None:
    ddl, strategy = data.draw(typed_values())
    values = data.draw(st.lists(strategy, min_size=1, max_size=6))
    array = to_arrow(values, parse_type(ddl).arrow())
    cut = data.draw(st.integers(0, len(values)))

    assert from_arrow(array.slice(cut)) == values[cut:]
    assert from_arrow(array.slice(0, cut)) == values[:cut]
    assert from_arrow(pa.chunked_array([array.slice(0, cut), array.slice(cut)], type=array.type)) == values


def test_a_struct_comes_back_with_its_fields_by_name() -> None:
    kind = parse_type("array<struct<a:int,inner:struct<b:string>>>").arrow()
    ((row, missing),) = from_arrow(to_arrow([[(1, ("x",)), None]], kind))
    assert (row.a, row.inner.b, missing) == (1, "x", None)


def test_a_struct_may_be_given_as_a_dict_and_lacks_fields_as_null() -> None:
    kind = parse_type("struct<a:int,b:string>").arrow()
    assert from_arrow(to_arrow([{"b": "x"}, {"a": 1, "b": None}, (2, "y"), [3, "z"]], kind)) == [
        (None, "x"),
        (1, None),
        (2, "y"),
        (3, "z"),
    ]


def test_times_keep_their_instant_and_their_microseconds() -> None:
    late = datetime(2013, 7, 1, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=-4)))
    (read,) = from_arrow(to_arrow([late], parse_type("timestamp").arrow()))
    assert read == late
    assert read.utcoffset() == timedelta(0)
    extremes = [datetime.min, datetime.max]
    assert from_arrow(to_arrow(extremes, parse_type("timestamp_ntz").arrow())) == extremes


MISFITS = [
    ("bigint", 1.5),
    ("bigint", 1.0),
    ("bigint", "1"),
    ("bigint", True),
    ("bigint", 2**63),
    ("bigint", Decimal("1.5")),
    ("tinyint", 128),
    ("array<int>", [1, 2.5]),
    ("array<int>", b"ab"),
    ("array<array<int>>", [[1], [2.5]]),
    ("array<string>", "text"),
    ("array<bigint>", 5),
    ("array<struct<a:int>>", {"a": 1}),
    ("array<struct<a:int>>", "text"),
    ("map<string,bigint>", [("a", 1)]),
    ("map<string,bigint>", []),
    ("map<string,bigint>", "text"),
    ("map<string,bigint>", {None: 1}),
    ("map<string,bigint>", {"a": 1.5}),
    ("string", b"x"),
    ("string", 1),
    ("string", "\ud800"),
    ("binary", "x"),
    ("boolean", 1),
    ("date", datetime(2013, 1, 1, 12)),
    ("timestamp", date(2013, 1, 1)),
    ("decimal(5,2)", Decimal("1.255")),
    ("decimal(5,2)", Decimal("1000")),
    ("decimal(5,2)", 1.25),
    ("double", Decimal("1.5")),
    ("struct<a:int>", (1, 2)),
    ("struct<a:int>", {"a": 1, "typo": 2}),
    ("struct<a:int>", 1),
    ("struct<a:int>", {"a": 1.5}),
]


@pytest.mark.parametrize(("ddl", "value"), MISFITS, ids=lambda part: ascii(part))
def test_a_value_of_another_type_is_refused_and_never_cut_to_fit(ddl: str, value: Any) -> None:
    arrow_type = parse_type(ddl).arrow()
    for values in ([value], [None, value]):
        with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError)):
            to_arrow(values, arrow_type)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 1, "typo": "x"}, "^missing field 'b', unknown field 'typo'$"),
        ((1,), "^missing field 'b'$"),
        ((1, "x", 2), "^3 values for 2 fields$"),
        (7, "^7 is not a tuple or dict of fields$"),
        (("x", "y"), "^field 'a': .*'x'"),
    ],
    ids=repr,
)
def test_the_field_that_is_wrong_is_named(value: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        to_arrow([value], parse_type("struct<a:int,b:string>").arrow())
