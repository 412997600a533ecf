"""Fixtures for the tests of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.demo.feeder import load_flights


@pytest.fixture(scope="session")
def flights_table() -> pa.Table:
    return load_flights()


@pytest.fixture(scope="session")
def flights(spark: Any, flights_table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("flights") / "flights.parquet"
    pq.write_table(flights_table, path)
    frame = spark.read.parquet(str(path)).cache()
    yield frame
    frame.unpersist()


@pytest.fixture
def frame(spark: Any, tmp_path: Path) -> Any:
    """Make a DataFrame of rows given as tuples, by way of a file: quick, without Python workers."""

    def make(rows: list[tuple[Any, ...]], schema: pa.Schema) -> Any:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        columns = [[row[i] for row in rows] for i in range(len(schema))]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
        return spark.read.parquet(str(path))

    return make
