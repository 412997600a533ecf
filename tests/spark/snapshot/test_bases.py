"""A base is a Parquet file that Spark reads as a table, however its columns are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.model import StateKind
from statecore.snapshot.keyed_files import KeyedRows, encode_base, key_schema, rows_table
from statecore.state import TableSchema

KEYS: dict[str, list[Any]] = {"string": ["a", "ab", "b", None], "bigint": [-5, None, 7, 2**62]}
VALUES: dict[str, list[Any]] = {
    "int": [1, -1, None, 2**31 - 1],
    "bigint": [1, None, -(2**62), 3],
    "double": [0.5, float("-inf"), None, -0.0],
    "string": ["x", None, "", "x"],
    "array<bigint>": [[1, 2], [], None, [None]],
}


@pytest.mark.parametrize("vectorised", ["true", "false"])
@pytest.mark.parametrize("value_type", VALUES)
@pytest.mark.parametrize("key_type", ["string", "bigint"])
def test_spark_reads_what_was_written(
    spark: Any, tmp_path: Path, key_type: str, value_type: str, vectorised: str
) -> None:
    keys, values = KEYS[key_type], VALUES[value_type]
    table = rows_table(
        KeyedRows([(key,) for key in keys], [0, 0, 1, 2], values),
        key_schema([("k", key_type)]),
        TableSchema(StateKind.VALUE, value_type),
        "total",
    )
    (tmp_path / "base.parquet").write_bytes(encode_base(table))
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
    try:
        rows = spark.read.parquet(str(tmp_path / "base.parquet")).select("k", "_key_group", "_value").collect()
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
    assert [tuple(row) for row in rows] == list(zip(keys, [0, 0, 1, 2], values, strict=True))
