"""key_group_for against the JVM expression it is the twin of."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import pytest

from statecore.model.key_hash import hash_key, key_group_for

MAX_PARALLELISMS = (1, 7, 100, 128, 32768)
rng = random.Random(7)


def integers(bits):
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return [0, 1, -1, low, high, low + 1, *(rng.randint(low, high) for _ in range(30))]


def decimals(precision, scale):
    top = 10**precision - 1
    edge = [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), 2**64, top, -top]
    unscaled = [n for n in edge if abs(n) <= top] + [rng.randint(-top, top) for _ in range(30)]
    return [Decimal(n).scaleb(-scale, Context(prec=50)) for n in unscaled]


FLOATS = [0.0, -0.0, math.nan, float("-nan"), math.inf, -math.inf, 1.5, -2.25, 1e-3, 5e-324, 1e-45, 3.4e38]
LONG = "".join(map(chr, range(32, 127)))
STRINGS = ["", "a", "\0", "äöü", "日本語", "😀", " ", "A", *(LONG[:n] for n in range(1, 80)), LONG * 20]
BYTES = [b"", b"\0", b"\xff\x80", *(bytes(range(200, 200 + n)) for n in range(1, 41)), bytes(range(256)) * 3]
DATES = [
    date(1970, 1, 1),
    date(1969, 12, 31),
    date(1, 1, 1),
    date(9999, 12, 31),
    date(1582, 10, 4),
    date(2024, 2, 29),
]
TIMES = [
    datetime(1970, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1, 1, 2),
    datetime(9999, 12, 30, 1, 2, 3, 4),
    datetime(1900, 1, 1, 0, 0, 0, 1),
    datetime(2024, 3, 31, 2, 30),
    *(datetime(1970, 1, 1) + timedelta(microseconds=rng.randint(-(10**15), 10**16)) for _ in range(20)),
]
INSTANTS = [t.replace(tzinfo=UTC) for t in TIMES]


def of(*columns, count=60):
    """Rows drawn from the columns' values, with nulls among them."""
    return [tuple(rng.choice([None, *column]) for column in columns) for _ in range(count)]


def lists(values):
    return [[], [None], *([rng.choice([None, *values]) for _ in range(rng.randint(1, 5))] for _ in range(30))]


CASES = {
    "boolean": [True, False],
    "tinyint": integers(8),
    "smallint": integers(16),
    "int": integers(32),
    "bigint": integers(64),
    "float": FLOATS,
    "double": [*FLOATS, 1.7e308, 0.1, math.pi],
    "decimal(9,2)": decimals(9, 2),
    "decimal(18,18)": decimals(18, 18),
    "decimal(18,0)": decimals(18, 0),
    "decimal(19,0)": decimals(19, 0),
    "decimal(38,0)": decimals(38, 0),
    "decimal(38,10)": decimals(38, 10),
    "string": STRINGS,
    "varchar(200)": [s for s in STRINGS if len(s) < 200],
    "binary": BYTES,
    "date": DATES,
    "timestamp": INSTANTS,
    "timestamp_ntz": TIMES,
    "array<int>": lists(integers(32)),
    "array<double>": lists(FLOATS),
    "array<array<string>>": lists(lists(STRINGS)),
    "array<decimal(25,3)>": lists(decimals(25, 3)),
    "struct<a:int,b:string>": of(integers(32), STRINGS),
    "struct<a:double,b:struct<c:timestamp,d:array<date>>>": of(FLOATS, of(INSTANTS, lists(DATES))),
    "array<struct<a:bigint,b:boolean>>": lists(of(integers(64), [True, False])),
    "struct<a:binary,b:decimal(38,2),c:timestamp_ntz>": of(BYTES, decimals(38, 2), TIMES),
}


def spark_hashes(spark, rows, key_types):
    """One job: xxhash64 of the key columns and its group for every max parallelism."""
    import pyarrow as pa

    from statecore.model.parsing import parse_type
    from statecore.model.types import Field, arrow_schema

    fields = [Field(f"k{i}", parse_type(ddl)) for i, ddl in enumerate(key_types)]
    columns = [as_arrow(column, f.type.arrow()) for column, f in zip(zip(*rows, strict=True), fields, strict=True)]
    frame = spark.createDataFrame(pa.Table.from_arrays(columns, schema=arrow_schema(fields)))
    hashed = f"xxhash64({', '.join(f.name for f in fields)})"
    groups = [f"int(pmod({hashed}, {n})) g{n}" for n in MAX_PARALLELISMS]
    return [tuple(row) for row in frame.selectExpr(hashed, *groups).collect()]


def as_arrow(column, arrow_type):
    """Build an Arrow array, with structs given as tuples."""
    import pyarrow as pa

    def plain(value, t):
        if value is None:
            return None
        if pa.types.is_struct(t):
            return {t.field(i).name: plain(item, t.field(i).type) for i, item in enumerate(value)}
        if pa.types.is_list(t):
            return [plain(item, t.value_type) for item in value]
        return value

    return pa.array([plain(value, arrow_type) for value in column], arrow_type)


def assert_twins(spark, rows, key_types):
    for row, (hashed, *groups) in zip(rows, spark_hashes(spark, rows, key_types), strict=True):
        assert hash_key(row, key_types) == hashed, row
        assert [key_group_for(row, key_types, n) for n in MAX_PARALLELISMS] == groups, row


@pytest.mark.parametrize("key_type", list(CASES))
def test_key_groups_are_those_of_the_jvm(spark, key_type):
    assert_twins(spark, [(value,) for value in [None, *CASES[key_type]]], [key_type])


def test_key_groups_of_several_columns_are_those_of_the_jvm(spark):
    key_types = list(CASES)
    assert_twins(spark, of(*CASES.values(), count=200), key_types)
