"""Spark DDL types: read, written again, and refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.dialects.spark import Spark

from statecore.errors import UnsupportedTypeError
from statecore.model.parsing import parse_row, parse_schema, parse_type
from statecore.model.types import (
    ArrayType,
    AtomicType,
    DecimalType,
    Field,
    MapType,
    StringType,
    StructType,
    arrow_schema,
    require_key_type,
)


@pytest.mark.parametrize(
    ("text", "canonical", "arrow"),
    [
        ("boolean", "boolean", pa.bool_()),
        ("tinyint", "tinyint", pa.int8()),
        ("byte", "tinyint", pa.int8()),
        ("smallint", "smallint", pa.int16()),
        ("short", "smallint", pa.int16()),
        ("int", "int", pa.int32()),
        ("INTEGER", "int", pa.int32()),
        ("bigint", "bigint", pa.int64()),
        ("long", "bigint", pa.int64()),
        ("float", "float", pa.float32()),
        ("real", "float", pa.float32()),
        ("double", "double", pa.float64()),
        ("decimal", "decimal(10,0)", pa.decimal128(10, 0)),
        ("dec(5)", "decimal(5,0)", pa.decimal128(5, 0)),
        ("numeric(38, 38)", "decimal(38,38)", pa.decimal128(38, 38)),
        ("decimal(10,2)", "decimal(10,2)", pa.decimal128(10, 2)),
        ("string", "string", pa.string()),
        ("varchar(5)", "string", pa.string()),
        ("char(5)", "string", pa.string()),
        ("string collate UTF8_BINARY", "string", pa.string()),
        ("string collate utf8_lcase", "string collate UTF8_LCASE", pa.string()),
        ("binary", "binary", pa.binary()),
        ("date", "date", pa.date32()),
        ("timestamp", "timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ltz", "timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", "timestamp_ntz", pa.timestamp("us")),
        ("array< int >", "array<int>", pa.list_(pa.int32())),
        ("map<string, bigint>", "map<string,bigint>", pa.map_(pa.string(), pa.int64())),
        (
            "struct<a int, `b c`: string not null comment 'why'>",
            "struct<a:int,`b c`:string not null>",
            pa.struct([pa.field("a", pa.int32()), pa.field("b c", pa.string())]),
        ),
        (
            "array<struct<m:map<int,array<decimal(20,3)>>>>",
            "array<struct<m:map<int,array<decimal(20,3)>>>>",
            pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.decimal128(20, 3))))])),
        ),
    ],
)
def test_a_type_reads_writes_and_has_the_arrow_type_of_spark(text, canonical, arrow):
    data_type = parse_type(text)
    assert data_type.ddl() == canonical
    assert parse_type(canonical) == data_type
    assert data_type.arrow() == arrow


ATOMS = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double"]
ATOMS += ["binary", "date", "timestamp", "timestamp_ntz"]
names = st.one_of(
    st.sampled_from(sorted(word.lower() for word in Spark.Tokenizer.KEYWORDS if word.isidentifier())),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6),
)
data_types = st.recursive(
    st.one_of(
        st.sampled_from(ATOMS).map(AtomicType),
        st.sampled_from([None, "UTF8_LCASE", "UNICODE_CI"]).map(StringType),
        st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s))),
    ),
    lambda inner: st.one_of(
        inner.map(ArrayType),
        st.builds(MapType, st.sampled_from(ATOMS).map(AtomicType), inner),
        st.lists(
            st.builds(Field, names, inner, st.booleans()),
            min_size=1,
            max_size=3,
            unique_by=lambda f: f.name.casefold(),
        ).map(lambda fields: StructType(tuple(fields))),
    ),
    max_leaves=6,
)


@given(data_types)
def test_canonical_text_reads_back_to_an_equal_type(data_type):
    assert parse_type(data_type.ddl()) == data_type


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("void", "CAST"),
        ("array<void>", "CAST"),
        ("variant", "to_json"),
        ("struct<v:variant>", "to_json"),
        ("interval", "bigint"),
        ("interval day to second", "bigint"),
        ("interval year to month", "bigint"),
        ("time", "bigint"),
        ("array<time(6)>", "bigint"),
        ("timestamp(3)", "without precision"),
        ("timestamp without time zone", "timestamp_ntz"),
        ("timestamp with time zone", "timestamp_ntz"),
        ("bigint not null", "remove NOT NULL here"),
        ("decimal(39)", "from 1 to 38"),
        ("decimal(0)", "from 1 to 38"),
        ("decimal(5,6)", "no larger"),
        ("decimal(10,2,3)", "1 to 38"),
        ("decimal('a')", "1 to 38"),
        ("map<map<int,int>,int>", "out of the key"),
        ("map<int>", "a value type"),
        ("varchar", "write string"),
        ("foo", "spelling"),
        ("", "spelling"),
        ("int>>", "spelling"),
        ("array<int", "spelling"),
        ("array", "spelling"),
        ("array<int>[]", "spelling"),
        ("struct", "spelling"),
        ("struct<>", "spelling"),
        ("int(5)", "spelling"),
        ("int, string", "spelling"),
        ("int; drop", "spelling"),
        ("int collate UTF8_LCASE", "spelling"),
        ("bigint unsigned", "spelling"),
        ("json", "spelling"),
        ("nullable(int)", "spelling"),
        ("struct<int>", "a name and a type"),
        ("struct<a:int,A:string>", "rename"),
        ("struct<a:int primary key>", "remove"),
    ],
)
def test_what_is_no_type_for_state_is_refused_by_name_with_a_remedy(text, remedy):
    with pytest.raises(UnsupportedTypeError, match=remedy) as error:
        parse_type(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize("found", [None, 3, pa.int64()])
def test_a_type_that_is_not_text_is_refused(found):
    for parse in (parse_type, parse_schema, parse_row):
        with pytest.raises(UnsupportedTypeError, match="DDL text"):
            parse(found)


@pytest.mark.parametrize("text", ["k string, total bigint", "k: string, total: bigint", "k string , total:long"])
def test_a_schema_is_read_in_either_spelling(text):
    fields = (Field("k", StringType()), Field("total", AtomicType("bigint")))
    assert parse_schema(text) == fields
    assert arrow_schema(fields) == pa.schema([("k", pa.string()), ("total", pa.int64())])


def test_a_schema_may_use_type_names_backticks_and_not_null():
    fields = parse_schema("date date, key string not null, `a``b c` array<int>, s string collate UNICODE")
    assert [field.name for field in fields] == ["date", "key", "a`b c", "s"]
    assert [field.nullable for field in fields] == [True, False, True, True]
    assert fields[3].type == StringType("UNICODE")
    assert not arrow_schema(fields).field("key").nullable


@pytest.mark.parametrize("text", ["", "int", "a int b int", "a", "a void", "a int, a int", "a int) x", "a time"])
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(UnsupportedTypeError):
        parse_schema(text)


def test_a_row_is_columns_a_struct_or_one_value():
    two = parse_schema("a int, b string")
    assert parse_row("a int, b string") == two
    assert parse_row("struct<a:int,b:string>") == two
    assert parse_row("bigint") == (Field("value", AtomicType("bigint")),)
    with pytest.raises(UnsupportedTypeError):
        parse_row("variant")


@pytest.mark.parametrize("text", [*ATOMS, "string", "decimal(38,0)", "array<int>", "struct<a:array<string>,b:date>"])
def test_types_that_compare_by_their_bytes_can_be_keys(text):
    assert parse_type(text).key_problem is None
    require_key_type(parse_type(text))


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("map<int,int>", "map_entries"),
        ("array<map<int,int>>", "map_entries"),
        ("struct<a:int,m:map<int,int>>", "map_entries"),
        ("string collate UTF8_LCASE", "UTF8_BINARY"),
        ("array<string collate UNICODE_CI>", "UTF8_BINARY"),
        ("struct<s:string collate UNICODE_CI>", "UTF8_BINARY"),
    ],
)
def test_maps_and_collations_are_no_keys_and_a_remedy_is_named(text, remedy):
    data_type = parse_type(text)
    assert data_type.key_problem is not None
    with pytest.raises(UnsupportedTypeError, match=remedy):
        require_key_type(data_type)
