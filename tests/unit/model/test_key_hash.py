"""Canonical keys; that their key groups are Spark's is proven in test_key_hash_spark.py."""

from __future__ import annotations

import math
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import Row

from statecore.errors import InvalidParallelismError, StateTypeError, UnsupportedTypeError
from statecore.model.key_hash import canonical_key, hash_key, key_encoder, key_group_for
from statecore.model.parsing import parse_type

Point = namedtuple("Point", "x y")
NAN = float("-nan")


def exactly(value):
    """Compare what == does not distinguish: types, the sign of zero, the identity of NaN."""
    if isinstance(value, tuple):
        return tuple(exactly(item) for item in value)
    return type(value), "nan" if value is math.nan else repr(value)


@pytest.mark.parametrize(
    ("key_type", "value", "canonical"),
    [
        ("double", -0.0, 0.0),
        ("double", NAN, math.nan),
        ("double", 3, 3.0),
        ("float", -0.0, 0.0),
        ("float", NAN, math.nan),
        ("float", 0.1, 0.10000000149011612),
        ("float", math.inf, math.inf),
        ("float", -1e-50, 0.0),
        ("array<double>", [-0.0, NAN, None], (0.0, math.nan, None)),
        ("struct<x:double,y:double>", Point(-0.0, NAN), (0.0, math.nan)),
        ("struct<x:double,y:double>", {"y": 1.0, "x": -0.0}, (0.0, 1.0)),
        ("struct<x:double,y:double>", Row(x=-0.0, y=1.0), (0.0, 1.0)),
        ("struct<a:array<struct<b:float>>>", {"a": [{"b": -0.0}]}, (((0.0,),),)),
        ("binary", bytearray(b"ab"), b"ab"),
        ("binary", memoryview(b"ab"), b"ab"),
        ("decimal(10,2)", Decimal("1.5"), Decimal("1.50")),
        ("decimal(10,2)", 7, Decimal("7.00")),
        ("decimal(10,2)", Decimal("-0"), Decimal("0.00")),
        ("decimal(38,0)", -(10**38 - 1), Decimal(-(10**38 - 1))),
        ("timestamp", datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)),
        ("timestamp", datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC")), datetime(2020, 1, 1, tzinfo=UTC)),
        (
            "timestamp",
            datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2020, 1, 1, tzinfo=UTC),
        ),
        ("timestamp_ntz", datetime(2020, 1, 1), datetime(2020, 1, 1)),
        ("date", date(2020, 1, 1), date(2020, 1, 1)),
        ("boolean", True, True),
        ("tinyint", -128, -128),
        ("bigint", 2**63 - 1, 2**63 - 1),
        ("string", "ä", "ä"),
        ("bigint", None, None),
        ("struct<a:int>", None, None),
    ],
)
def test_a_value_has_one_canonical_form(key_type, value, canonical):
    found = canonical_key((value,), [key_type])
    assert exactly(found) == exactly((canonical,))
    assert exactly(canonical_key(found, [key_type])) == exactly(found)
    assert key_group_for((value,), [key_type], 128) == key_group_for((canonical,), [key_type], 128)
    assert {found: "state"}[canonical_key((value,), [key_type])] == "state"


@pytest.mark.parametrize(
    ("key_type", "value"),
    [
        ("bigint", 2**63),
        ("int", 2**31),
        ("tinyint", 128),
        ("smallint", -32769),
        ("bigint", True),
        ("bigint", 1.0),
        ("bigint", "1"),
        ("boolean", 1),
        ("double", "1"),
        ("double", True),
        ("double", 2**53 + 1),
        ("double", 10**400),
        ("float", 1e39),
        ("string", b"a"),
        ("string", 1),
        ("string", "\ud800"),
        ("binary", "a"),
        ("binary", 5),
        ("date", datetime(2020, 1, 1)),
        ("date", "2020-01-01"),
        ("timestamp", date(2020, 1, 1)),
        ("timestamp", datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
        ("timestamp_ntz", datetime(2020, 1, 1, tzinfo=UTC)),
        ("decimal(10,2)", 1.5),
        ("decimal(10,2)", Decimal("1.005")),
        ("decimal(3,2)", Decimal("10")),
        ("decimal(10,2)", Decimal("NaN")),
        ("decimal(38,0)", 10**38),
        ("struct<a:int,b:int>", (1,)),
        ("struct<a:int,b:int>", {"a": 1, "c": 2}),
        ("struct<a:int,b:int>", [1, 2]),
        ("struct<a:int,b:int>", (1, "x")),
        ("struct<a:int not null>", (None,)),
        ("array<int>", 3),
        ("array<int>", "12"),
        ("array<int>", [1, None, 2.5]),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_field(key_type, value):
    with pytest.raises(StateTypeError, match="in key field 1; expected a value that fits") as error:
        canonical_key(("ok", value), ["string", key_type])
    assert parse_type(key_type).ddl() in str(error.value)


@pytest.mark.parametrize("key", [(), (1, 2), [1], 1, "k"])
def test_a_key_of_another_shape_is_refused(key):
    with pytest.raises(StateTypeError, match="tuple with one value"):
        key_group_for(key, ["bigint"], 128)


@pytest.mark.parametrize("key_type", ["map<int,int>", "string collate UTF8_LCASE", "variant", "void", "array<time>"])
def test_types_that_are_no_keys_are_refused(key_type):
    for call in (canonical_key, hash_key, lambda key, types: key_group_for(key, types, 8)):
        with pytest.raises(UnsupportedTypeError):
            call((None,), [key_type])
    with pytest.raises(UnsupportedTypeError):
        key_encoder([key_type])


@pytest.mark.parametrize("bad", [0, 32769, True, 4.0])
def test_a_max_parallelism_out_of_bounds_is_refused(bad):
    with pytest.raises(InvalidParallelismError):
        key_group_for((1,), ["bigint"], bad)


def test_known_hashes_of_spark():
    assert hash_key((1,), ["int"]) == -6698625589789238999
    assert hash_key(("a",), ["string"]) == -8582455328737087284
    assert hash_key((-0.0,), ["double"]) == -5252525462095825812
    assert hash_key((NAN,), ["float"]) == 2692338816207849720
    assert hash_key((None,), ["bigint"]) == hash_key(([],), ["array<int>"]) == 42
    assert key_group_for((1,), ["int"], 100) == -6698625589789238999 % 100


@pytest.mark.parametrize(
    ("key_types", "keys"),
    [
        (["double"], [(-0.0,), (NAN,), (1.5,), (None,)]),
        (["float", "string"], [(-0.0, "a"), (NAN, None), (0.5, "")]),
        (["bigint", "timestamp"], [(1, datetime(1960, 5, 5, 1, 2, 3, 4, tzinfo=UTC)), (2, None)]),
        (["struct<a:double,b:array<float>>"], [({"a": -0.0, "b": [NAN, None]},), (None,)]),
        (["array<string>", "binary"], [(["a", None], b"x"), ([], b""), (None, None)]),
        (["decimal(20,2)", "date", "timestamp_ntz"], [(Decimal("1.50"), date(1, 1, 1), datetime(1, 1, 1))]),
        (["struct<a:int,b:struct<c:boolean>>"], [({"a": 1, "b": {"c": True}},), ({"a": None, "b": None},)]),
    ],
)
def test_the_encoder_makes_of_arrows_values_what_canonical_key_makes(key_types, keys):
    arrow = [
        pa.array(column, parse_type(t).arrow()).to_pylist()
        for t, column in zip(key_types, zip(*keys, strict=True), strict=True)
    ]
    encode = key_encoder(key_types)
    for key, from_arrow in zip(keys, zip(*arrow, strict=True), strict=True):
        assert exactly(encode(from_arrow)) == exactly(canonical_key(key, key_types))


def test_the_encoder_leaves_keys_alone_that_are_canonical_already():
    key = (1, "a", True, date(2020, 1, 1))
    assert key_encoder(["bigint", "string", "boolean", "date"])(key) is key
