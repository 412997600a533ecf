"""Rows that Spark encoded are decoded into columns that Spark hashes alike."""

from __future__ import annotations

import datetime
import decimal
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from statecore.errors import CheckpointRefusedError
from statecore.queries.rows.byte_columns import ByteColumn
from statecore.queries.rows.unsafe_rows import carried_type, decode
from tests.support.examples import examples


def _decimals(precision, scale):
    top = 10**precision - 1
    corners = [each for each in (0, 1, -1, 127, -128, 128, 255, -256, top, -top) if abs(each) <= top]
    whole = st.integers(-top, top) | st.sampled_from(corners)
    context = decimal.Context(prec=40)
    return st.just(DecimalType(precision, scale)), whole.map(lambda n: decimal.Decimal(n).scaleb(-scale, context))


def _rounded(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


_ODD = [float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 5e-324]
_TIMES = st.datetimes(datetime.datetime(1, 1, 3), datetime.datetime(9999, 12, 29))
LEAVES = [
    (st.just(BooleanType()), st.booleans()),
    (st.just(ByteType()), st.integers(-(2**7), 2**7 - 1)),
    (st.just(ShortType()), st.integers(-(2**15), 2**15 - 1)),
    (st.just(IntegerType()), st.integers(-(2**31), 2**31 - 1)),
    (st.just(LongType()), st.integers(-(2**63), 2**63 - 1)),
    (st.just(FloatType()), st.floats(width=32) | st.sampled_from([_rounded(each) for each in _ODD])),
    (st.just(DoubleType()), st.floats() | st.sampled_from(_ODD)),
    (st.just(DateType()), st.dates()),
    (st.just(TimestampType()), _TIMES.map(lambda time: time.replace(tzinfo=datetime.UTC))),
    (st.just(TimestampNTZType()), _TIMES),
    (st.just(StringType()), st.text(st.characters(exclude_categories=["Cs"]))),
    (st.just(BinaryType()), st.binary()),
    *(_decimals(*each) for each in [(1, 0), (9, 2), (18, 18), (19, 0), (38, 6), (38, 38)]),
]


@st.composite
def kinds_and_values(draw, depth=2):
    """Draw a type and a strategy of its values, nulls among them."""
    shape = draw(st.sampled_from(["leaf"] * 6 + ["struct", "array"])) if depth else "leaf"
    if shape == "leaf":
        kinds, values = draw(st.sampled_from(LEAVES))
        return draw(kinds), st.none() | values
    if shape == "array":
        kind, values = draw(kinds_and_values(depth - 1))
        return ArrayType(kind), st.none() | st.lists(values, max_size=70)
    inner = draw(st.lists(kinds_and_values(depth - 1), min_size=1, max_size=3))
    fields = StructType([StructField(f"f{number}", kind) for number, (kind, _) in enumerate(inner)])
    return fields, st.none() | st.tuples(*(values for _, values in inner))


@st.composite
def tables(draw):
    """Draw a schema and rows of it."""
    columns = draw(st.lists(kinds_and_values(), min_size=1, max_size=5))
    schema = StructType([StructField(f"c{number}", kind) for number, (kind, _) in enumerate(columns)])
    return schema, draw(st.lists(st.tuples(*(values for _, values in columns)), min_size=1, max_size=12))


def encoded(frame):
    """Return the rows of a table as Spark's UnsafeRow bytes."""
    plan = frame._jdf.queryExecution().executedPlan()
    return [bytes(row.getBytes()) for row in plan.executeCollect()]


def hashes(spark, rows, fields, kinds):
    """Return Spark's hash of rows that were decoded in a task."""

    def decoded(batches):
        for batch in batches:
            columns = decode(ByteColumn.of(batch.column(0)), fields, kinds)
            yield pa.RecordBatch.from_arrays(columns, [f"c{number}" for number in range(len(columns))])

    schema = StructType([StructField(f"c{number}", kind) for number, kind in enumerate(kinds)])
    source = spark.createDataFrame([(row,) for row in rows], "key binary").coalesce(1)
    hashed = source.mapInArrow(decoded, schema).select(F.hash(*schema.names))
    return [row[0] for row in hashed.collect()]


def check_hashes(spark, frame):
    frame = frame.coalesce(1)
    kinds = [carried_type(field.dataType, field.name) for field in frame.schema.fields]
    expected = [row[0] for row in frame.select(F.hash(*frame.columns)).collect()]
    assert hashes(spark, encoded(frame), len(frame.schema), kinds) == expected


@examples(60)
@given(tables())
def test_decoded_rows_hash_as_spark_hashes_them(spark, table):
    schema, rows = table
    check_hashes(spark, spark.createDataFrame(rows, schema).repartition(1))


@examples(40)
@given(tables())
def test_decoded_rows_have_the_values_that_spark_encoded(spark, table):
    schema, rows = table
    frame = spark.createDataFrame(rows, schema).repartition(1)
    raw = encoded(frame)
    kinds = [carried_type(field.dataType) for field in schema.fields]
    columns = decode(ByteColumn.of(pa.array(raw, pa.binary())), len(schema), kinds)
    for column in columns:
        column.validate(full=True)
    expected = frame.toArrow().columns
    for column, wanted in zip(columns, expected, strict=True):
        assert repr(column.to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.parametrize("count", (1, 63, 64, 65, 130))
def test_nulls_of_many_columns_are_found_in_their_words(spark, count):
    schema = StructType([StructField(f"c{number}", StringType()) for number in range(count)])
    rows = [
        tuple(None if (row + column) % 3 == 0 else f"{row}-{column}" for column in range(count)) for row in range(9)
    ]
    check_hashes(spark, spark.createDataFrame(rows, schema).repartition(1))


STAND_INS = {
    "INTERVAL YEAR TO MONTH": "make_ym_interval(CAST(id AS INT) - 2, 7)",
    "INTERVAL MONTH": "CAST(make_ym_interval(0, CAST(id AS INT)) AS INTERVAL MONTH)",
    "INTERVAL DAY TO SECOND": "make_dt_interval(CAST(id AS INT) - 3, 1, 2, 3.000004)",
    "INTERVAL HOUR": "CAST(make_dt_interval(0, CAST(id AS INT)) AS INTERVAL HOUR)",
    "TIME": "CAST('12:34:56.789' AS TIME)",
    "VOID": "NULL",
}


@pytest.mark.parametrize("expression", STAND_INS.values(), ids=STAND_INS)
def test_types_that_arrow_does_not_carry_hash_as_what_they_are_stored_as(spark, expression):
    odd = f"IF(id % 3 = 0, NULL, {expression})"
    own = spark.newSession()
    own.conf.set("spark.sql.timeType.enabled", "true")
    frame = own.range(20).selectExpr(f"{odd} AS a", f"struct({odd} AS x, id AS y) AS b", f"array({odd}, {odd}) AS c")
    check_hashes(spark, frame.repartition(1))


REFUSED = {
    "map": "map(id, id)",
    "interval": "make_interval(1, 2, 3, 4, 5, 6, CAST(id AS INT))",
    "variant": "parse_json('1')",
    "string collate UTF8_LCASE": "CAST(id AS STRING) COLLATE UTF8_LCASE",
    "string collate UTF8_BINARY_RTRIM": "CAST(id AS STRING) COLLATE UTF8_BINARY_RTRIM",
}


@pytest.mark.parametrize(("name", "expression"), REFUSED.items(), ids=REFUSED)
def test_a_key_of_another_type_is_refused_by_name(spark, name, expression):
    schema = spark.range(1).selectExpr(f"struct(array({expression}) AS inner) AS outer").schema
    with pytest.raises(CheckpointRefusedError, match=rf"the key outer\.inner\[\] of the type {name}"):
        carried_type(schema["outer"].dataType, "outer")
