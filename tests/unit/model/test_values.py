"""Stored values: accepted inputs, and the stored form, which equals that of a restore from Arrow."""

from __future__ import annotations

import math
from collections import namedtuple
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import UnsupportedTypeError
from statecore.model.arrow_values import from_arrow, to_arrow
from statecore.model.key_hash import canonical_key
from statecore.model.parsing import parse_type
from statecore.model.values import MisfitError, map_key_type, row_class, value_type

# The machine may be busy; slowness proves nothing here.
Level = IntEnum("Level", {"LOW": 1})
Word = StrEnum("Word", {"A": "a"})
Point = namedtuple("Point", "x y")
Pair = row_class(("a", "b"))
UTC_OF_ARROW = ZoneInfo("UTC")
NAN = float("nan")
LATE = datetime(2013, 7, 1, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=-4)))
# The second 2:30 of the night in which the clock goes back.
TWICE = datetime(2013, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)


def exactly(value: Any) -> Any:
    """Tell apart what == does not: types, zones, the sign of zero; and find NaN equal to NaN."""
    if isinstance(value, tuple):
        return type(value), [exactly(item) for item in value]
    if isinstance(value, list):
        return [exactly(item) for item in value]
    if isinstance(value, dict):
        return [(exactly(key), exactly(item)) for key, item in value.items()]
    return type(value), repr(value)


def stored_and_read(value: Any, ddl: str) -> Any:
    (read,) = from_arrow(to_arrow([value], parse_type(ddl).arrow()))
    return read


# --- examples ---

ACCEPTED = [
    ("boolean", True, True),
    ("boolean", np.True_, True),
    ("tinyint", -128, -128),
    ("smallint", 32767, 32767),
    ("int", Level.LOW, 1),
    ("int", np.int64(3), 3),
    ("bigint", 2**63 - 1, 2**63 - 1),
    ("bigint", -(2**63), -(2**63)),
    ("bigint", np.uint8(3), 3),
    ("double", 3, 3.0),
    ("double", 2**60, 2.0**60),
    ("double", -0.0, -0.0),
    ("double", NAN, NAN),
    ("double", np.float64(1.5), 1.5),
    ("double", np.float32(1.5), 1.5),
    ("double", np.int32(2), 2.0),
    ("float", 0.1, 0.10000000149011612),
    ("float", np.float64(0.1), 0.10000000149011612),
    ("float", 3, 3.0),
    ("float", -0.0, -0.0),
    ("float", math.inf, math.inf),
    ("float", NAN, NAN),
    ("decimal(10,2)", Decimal("1.5"), Decimal("1.50")),
    ("decimal(10,2)", Decimal("1e2"), Decimal("100.00")),
    ("decimal(10,2)", Decimal("-0"), Decimal("0.00")),
    ("decimal(10,2)", 7, Decimal("7.00")),
    ("decimal(10,2)", np.int64(7), Decimal("7.00")),
    ("decimal(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
    ("string", "ascii", "ascii"),
    ("string", "ä\U0001f600", "ä\U0001f600"),
    ("string", Word.A, "a"),
    ("string", np.str_("x"), "x"),
    ("string collate UNICODE_CI", "A", "A"),
    ("binary", b"ab", b"ab"),
    ("binary", bytearray(b"ab"), b"ab"),
    ("binary", memoryview(b"ab"), b"ab"),
    ("date", date(2020, 1, 1), date(2020, 1, 1)),
    ("date", np.datetime64("2020-01-01"), date(2020, 1, 1)),
    ("timestamp", datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC_OF_ARROW)),
    ("timestamp", datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC_OF_ARROW)),
    ("timestamp", LATE, datetime(2013, 7, 2, 3, 59, 59, 999_999, tzinfo=UTC_OF_ARROW)),
    ("timestamp", TWICE, datetime(2013, 10, 27, 1, 30, tzinfo=UTC_OF_ARROW)),
    ("timestamp", pd.Timestamp("2020-01-01"), datetime(2020, 1, 1, tzinfo=UTC_OF_ARROW)),
    ("timestamp", np.datetime64("2020-01-01T00:00:00", "us"), datetime(2020, 1, 1, tzinfo=UTC_OF_ARROW)),
    ("timestamp", datetime.max, datetime.max.replace(tzinfo=UTC_OF_ARROW)),
    ("timestamp_ntz", datetime.min, datetime.min),
    ("timestamp_ntz", datetime(2020, 1, 1, fold=1), datetime(2020, 1, 1)),
    ("timestamp_ntz", pd.Timestamp("2020-01-01"), datetime(2020, 1, 1)),
    ("array<int>", (1, None, np.int8(2)), [1, None, 2]),
    ("array<array<string>>", [["a"], None, ()], [["a"], None, []]),
    ("map<string,double>", {"a": 1, "b": None}, {"a": 1.0, "b": None}),
    ("map<double,int>", {NAN: 1, -0.0: 2}, {NAN: 1, -0.0: 2}),
    ("map<struct<a:int,b:int>,int>", {(1, 2): 3}, {Pair((1, 2)): 3}),
    ("struct<a:int,b:double>", {"b": 1}, Pair((None, 1.0))),
    ("struct<a:int,b:double>", {}, Pair((None, None))),
    ("struct<a:int,b:double>", (1, None), Pair((1, None))),
    ("struct<a:int,b:double>", [1, 2], Pair((1, 2.0))),
    ("struct<a:int,b:int>", Point(1, 2), Pair((1, 2))),
    ("struct<a:int not null,b:int>", (1, None), Pair((1, None))),
    ("struct<a:struct<a:int not null,b:int>,b:int>", (None, 1), Pair((None, 1))),
    ("struct<`b c`:int,class:int>", {"b c": 1, "class": 2}, row_class(("b c", "class"))((1, 2))),
    ("array<struct<a:map<string,array<int>>,b:int>>", [({"x": (1,)}, 2)], [Pair(({"x": [1]}, 2))]),
]


@pytest.mark.parametrize(
    ("ddl", "value", "stored"), ACCEPTED, ids=lambda part: ascii(bytes(part) if isinstance(part, memoryview) else part)
)
def test_a_value_that_fits_has_one_stored_form_which_is_read_back_the_same(ddl: str, value: Any, stored: Any) -> None:
    found = value_type(ddl).conform(value)
    assert exactly(found) == exactly(stored)
    assert exactly(value_type(ddl).conform(found)) == exactly(found)
    assert exactly(stored_and_read(found, ddl)) == exactly(found)


REFUSED = [
    ("bigint", True),
    ("bigint", np.True_),
    ("bigint", 1.0),
    ("bigint", Decimal(1)),
    ("bigint", "1"),
    ("bigint", 2**63),
    ("bigint", -(2**63) - 1),
    ("bigint", np.uint64(2**63)),
    ("bigint", np.datetime64("2020-01-01", "ns")),
    ("int", 2**31),
    ("smallint", -32769),
    ("tinyint", 128),
    ("boolean", 1),
    ("boolean", "true"),
    ("boolean", np.int8(1)),
    ("double", True),
    ("double", np.True_),
    ("double", Decimal("1.5")),
    ("double", "1"),
    ("double", 2**53 + 1),
    ("double", 10**400),
    ("double", np.timedelta64(1, "ns")),
    ("double", np.array([1.0])),
    ("float", 2**24 + 1),
    ("float", np.int64(2**24 + 1)),
    ("float", 1e39),
    ("decimal(5,2)", 1.25),
    ("decimal(5,2)", True),
    ("decimal(5,2)", "1"),
    ("decimal(5,2)", Decimal("1.255")),
    ("decimal(5,2)", Decimal(1000)),
    ("decimal(5,2)", Decimal("NaN")),
    ("decimal(5,2)", Decimal("Infinity")),
    ("decimal(38,0)", 10**38),
    ("string", b"x"),
    ("string", 1),
    ("string", "\ud800"),
    ("binary", "x"),
    ("binary", 5),
    ("date", datetime(2013, 1, 1, 12)),
    ("date", "2013-01-01"),
    ("timestamp", date(2013, 1, 1)),
    ("timestamp", 0),
    ("timestamp", datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
    ("timestamp", pd.NaT),
    ("timestamp", np.datetime64("NaT", "us")),
    ("timestamp", pd.Timestamp("2020-01-01T00:00:00.000000001")),
    ("timestamp_ntz", datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp_ntz", pd.NaT),
    ("array<int>", 5),
    ("array<int>", b"ab"),
    ("array<int>", {1, 2}),
    ("array<int>", {"a": 1}),
    ("array<string>", "text"),
    ("map<string,bigint>", [("a", 1)]),
    ("map<string,bigint>", "text"),
    ("map<timestamp,int>", {datetime(2020, 1, 1): 1, datetime(2020, 1, 1, tzinfo=UTC): 2}),
    ("map<float,int>", {0.1: 1, 0.10000000149011612: 2}),
    ("struct<a:int>", (1, 2)),
    ("struct<a:int>", ()),
    ("struct<a:int>", {"a": 1, "typo": 2}),
    ("struct<a:int>", {"A": 1}),
    ("struct<a:int>", 1),
    ("struct<a:string>", "a"),
]


@pytest.mark.parametrize(("ddl", "value"), REFUSED, ids=lambda part: ascii(part))
def test_a_value_of_another_type_is_refused_and_never_cut_to_fit(ddl: str, value: Any) -> None:
    with pytest.raises(MisfitError) as error:
        value_type(ddl).conform(value)
    assert (error.value.value, error.value.expected, error.value.path) == (value, value_type(ddl).ddl, "")


@pytest.mark.parametrize(
    ("ddl", "value", "misfit", "expected", "path"),
    [
        ("array<int>", [1, 2.5], 2.5, "int", "[1]"),
        ("array<array<int>>", [[1], [2, "x"]], "x", "int", "[1][1]"),
        ("struct<a:int,b:string>", (1, 2), 2, "string", "b"),
        ("struct<a:struct<b:array<tinyint>>>", {"a": {"b": [0, 0, 0, 200]}}, 200, "tinyint", "a.b[3]"),
        ("array<struct<a:int>>", [{"typo": 1}], {"typo": 1}, "struct<a:int>", "[0]"),
        ("struct<a:int not null>", (None,), None, "int not null", "a"),
        ("struct<a:int not null,b:int>", {"b": 1}, None, "int not null", "a"),
        ("map<string,bigint>", {None: 1}, None, "string not null", "key"),
        ("map<string,bigint>", {1: 1}, 1, "string", "key"),
        ("map<string,bigint>", {"a": 1, "b": 1.5}, 1.5, "bigint", "['b']"),
        ("struct<m:map<struct<k:int>,array<int>>>", ({(1,): ["x"]},), "x", "int", "m[(1,)][0]"),
        ("struct<m:map<struct<k:int>,int>>", ({("x",): 1},), "x", "int", "m.key.k"),
    ],
)
def test_a_part_that_does_not_fit_is_named_with_its_type_and_the_way_to_it(
    ddl: str, value: Any, misfit: Any, expected: str, path: str
) -> None:
    with pytest.raises(MisfitError) as error:
        value_type(ddl).conform(value)
    assert (error.value.value, error.value.expected, error.value.path) == (misfit, expected, path)


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ({"a": 1, "typo": 2}, "missing field 'b', unknown field 'typo'"),
        ((1,), "missing field 'b'"),
        (row_class(("a", "typo", "c"))([1, 2, 3]), "missing field 'b', unknown field 'typo', unknown field 'c'"),
        ((1, 2, 3), "3 values for 2 fields"),
        (5, ""),
    ],
    ids=repr,
)
def test_missing_and_unknown_fields_are_named_at_any_depth(value: Any, fields: str) -> None:
    with pytest.raises(MisfitError) as whole:
        value_type("struct<a:int,b:int>").conform(value)
    assert whole.value.details == (f" ({fields})" if fields else "")
    with pytest.raises(MisfitError) as part:
        value_type("array<struct<a:int,b:int>>").conform([value])
    assert part.value.details.startswith(" ([0] is ")
    assert part.value.details.endswith(f"; {fields})" if fields else "not struct<a:int,b:int>)")


@pytest.mark.parametrize(
    "ddl", ["bigint", "string", "boolean", "double", "date", "struct<a:int not null>", "map<int,int>"]
)
def test_none_is_stored_as_none(ddl: str) -> None:
    conform, copy = value_type(ddl).conform, value_type(ddl).copy
    assert conform(None) is None
    assert copy is None or copy(None) is None


def test_a_map_whose_keys_hold_arrays_cannot_be_stored() -> None:
    for key in ("array<int>", "struct<a:array<int>>"):
        with pytest.raises(UnsupportedTypeError, match="expected a map whose keys hold no arrays"):
            value_type(f"struct<m:map<{key},int>>")


def test_the_type_is_told_in_its_canonical_form() -> None:
    assert value_type(" STRUCT<a: INTEGER, b: varchar(5)>").ddl == "struct<a:int,b:string>"


@pytest.mark.parametrize(
    ("ddl", "changes"),
    [
        ("bigint", False),
        ("string", False),
        ("binary", False),
        ("struct<a:int,b:struct<c:string>>", False),
        ("array<int>", True),
        ("map<int,int>", True),
        ("struct<a:int,b:struct<c:array<int>>>", True),
    ],
)
def test_only_types_with_arrays_or_maps_need_copies(ddl: str, changes: bool) -> None:
    assert (value_type(ddl).copy is not None) is changes


# --- the law, for any type ---

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
_ZONES = st.sampled_from([None, UTC, UTC_OF_ARROW, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-4))])
_YEARS = {"min_value": datetime(2, 1, 1), "max_value": datetime(9998, 1, 1)}

_ATOMS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "int": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9).map(np.int16),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32) | st.floats(-1e38, 1e38) | st.integers(-(2**24), 2**24),
    "double": st.floats() | st.integers(-(2**53), 2**53) | st.floats(width=32).map(np.float32),
    "decimal(38,6)": st.decimals(-(10**32) + 1, 10**32 - 1, places=6),
    "decimal(5,2)": st.decimals(-999, 999, places=1) | st.integers(-999, 999),
    "string": _TEXT,
    "binary": st.binary(max_size=3) | st.binary(max_size=3).map(memoryview),  # type: ignore[arg-type]
    "date": st.dates(),
    "timestamp": st.datetimes(**_YEARS, timezones=_ZONES),  # type: ignore[arg-type]
    "timestamp_ntz": st.datetimes(),
}
_KEYS = ["string", "bigint", "date", "double", "binary", "decimal(5,2)"]


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[str, st.SearchStrategy[Any]]:
    """Return a Spark type and a strategy for what may be written to it, None among them."""
    shape = draw(st.sampled_from(["atom", "array", "map", "struct"])) if depth else "atom"
    if shape == "atom":
        ddl = draw(st.sampled_from(sorted(_ATOMS)))
        values = _ATOMS[ddl]
    elif shape == "array":
        element, elements = draw(typed_values(depth - 1))
        ddl, values = f"array<{element}>", st.lists(elements, max_size=4)
        values |= values.map(tuple)
    elif shape == "map":
        item, items = draw(typed_values(depth - 1))
        key = draw(st.sampled_from(_KEYS))
        ddl, values = f"map<{key},{item}>", st.dictionaries(_ATOMS[key], items, max_size=4)
        if draw(st.booleans()):
            ddl = f"map<struct<`k 1`:{key},k2:bigint not null>,{item}>"
            pairs = st.tuples(st.none() | _ATOMS[key], _ATOMS["bigint"])
            values = st.dictionaries(pairs, items, max_size=4)
    else:
        fields = draw(st.lists(typed_values(depth - 1), min_size=1, max_size=3))
        names = ["a", "b c", "class"][: len(fields)]
        ddl = "struct<" + ",".join(f"`{n}`:{d}" for n, (d, _) in zip(names, fields, strict=True)) + ">"
        tuples = st.tuples(*(strategy for _, strategy in fields))
        dicts = st.fixed_dictionaries({}, optional=dict(zip(names, (s for _, s in fields), strict=True)))
        values = tuples | tuples.map(list) | tuples.map(row_class(tuple(names))) | dicts
    return ddl, st.none() | values


@given(st.data())
def test_a_stored_value_is_what_arrow_gives_back_types_included(data: st.DataObject) -> None:
    ddl, values = data.draw(typed_values())
    stored = [value_type(ddl).conform(value) for value in data.draw(st.lists(values, max_size=4))]

    array = to_arrow(stored, parse_type(ddl).arrow())

    array.validate(full=True)
    assert exactly(from_arrow(array)) == exactly(stored)
    assert exactly([value_type(ddl).conform(value) for value in stored]) == exactly(stored)


@pytest.mark.parametrize("ddl", ["array<struct<a:int not null>>", "array<struct<a:struct<b:int not null>>>"])
def test_a_struct_with_fields_that_are_not_null_may_itself_be_none(ddl: str) -> None:
    stored = value_type(ddl).conform([None])
    assert stored_and_read(stored, ddl) == [None]


def spoil(value: Any) -> None:
    """Mutate everything mutable in the value."""
    parts = list(value.values()) + list(value) if isinstance(value, dict) else value
    if isinstance(parts, list | tuple):
        for part in list(parts):
            spoil(part)
    if isinstance(value, dict | list):
        value.clear()


@given(st.data())
def test_a_stored_value_shares_nothing_that_can_change(data: st.DataObject) -> None:
    ddl, values = data.draw(typed_values())
    given_value = data.draw(values)
    kind = value_type(ddl)

    stored = kind.conform(given_value)
    before = exactly(stored)
    spoil(given_value)
    assert exactly(stored) == before

    if kind.copy is None:
        spoil(stored)
    else:
        copied = kind.copy(stored)
        assert exactly(copied) == before
        spoil(copied)
    assert exactly(stored) == before


def test_a_value_that_was_read_can_be_changed_without_changing_its_neighbour() -> None:
    rows = [[1, 2], {"a": [3]}]
    kind = value_type("struct<a:array<int>,b:map<string,array<int>>>")
    assert kind.copy is not None
    stored = kind.conform(rows)
    copied = kind.copy(stored)
    copied.b["a"].append(4)
    rows[0].append(5)  # type: ignore[attr-defined]
    assert deepcopy(stored) == ([1, 2], {"a": [3]})


# --- user keys of map state ---


@pytest.mark.parametrize(
    ("ddl", "key", "canonical"),
    [
        ("bigint", 5, 5),
        ("bigint", np.int64(5), 5),
        ("boolean", True, True),
        ("string", "ä", "ä"),
        ("double", NAN, math.nan),
        ("double", -0.0, 0.0),
        ("float", 0.1, 0.10000000149011612),
        ("float", np.float32(-0.0), 0.0),
        ("binary", bytearray(b"a"), b"a"),
        ("timestamp", datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)),
        ("timestamp", LATE, LATE.astimezone(UTC)),
        ("decimal(5,2)", 1, Decimal("1.00")),
        ("array<double>", [-0.0, None], (0.0, None)),
        ("struct<a:int,b:array<int>>", {"a": 1, "b": [2]}, (1, (2,))),
        ("struct<a:int,b:int>", Point(1, None), (1, None)),
    ],
)
def test_a_user_key_has_the_form_that_a_key_field_has(ddl: str, key: Any, canonical: Any) -> None:
    found = map_key_type(ddl)(key)
    assert exactly(found) == exactly(canonical) == exactly(canonical_key((key,), [ddl])[0])
    assert {found: "entry"}[map_key_type(ddl)(key)] == "entry"


@pytest.mark.parametrize("ddl", ["bigint", "boolean", "string", "double", "date", "array<int>", "struct<a:int>"])
def test_none_is_no_user_key(ddl: str) -> None:
    with pytest.raises(MisfitError) as error:
        map_key_type(ddl)(None)
    assert error.value.value is None


@pytest.mark.parametrize(
    ("ddl", "key"),
    [("bigint", True), ("bigint", 2**63), ("string", 1), ("double", "1"), ("struct<a:int not null>", (None,))],
)
def test_a_user_key_of_another_type_is_refused(ddl: str, key: Any) -> None:
    with pytest.raises(MisfitError):
        map_key_type(ddl)(key)


def test_a_type_that_cannot_be_a_key_cannot_be_a_user_key() -> None:
    for ddl in ("map<int,int>", "string collate UNICODE_CI"):
        with pytest.raises(UnsupportedTypeError):
            map_key_type(ddl)
