"""Every kind of query on both providers, rescaled again and again with input in between.

RocksDB's state has four forms: with and without changelog, in Spark's checkpoint format 1 and 2. Each test tries each
query in one of them, and another test in the next one, so in the end each query was rescaled in all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.queries.cells import file_sink_like_its_twin, killed_and_rescaled, query_file, rescaled_like_its_twin
from tests.spark.queries.streams import (
    BY_NAME,
    HDFS,
    PROVIDERS,
    ROCKSDB,
    ROCKSDB_CHANGELOG,
    STREAMS,
    Provider,
    Stream,
)

Cell = tuple[Stream, Provider]

FORMS = [provider for provider in PROVIDERS if provider is not HDFS]
CODECS = ("lz4", "lzf", "snappy", "zstd")


def _cells(turn: int) -> list[Cell]:
    """Return each query on the HDFS-backed provider, and on RocksDB in the form whose turn it is."""
    return [
        (stream, provider)
        for number, stream in enumerate(STREAMS)
        for provider in (HDFS, FORMS[(number + turn) % len(FORMS)])
        if stream.runs_on(provider)
    ]


def _named(cell: Cell) -> str:
    return "-".join(map(str, cell))


@pytest.mark.parametrize("cell", _cells(0), ids=_named)
def test_a_query_rescaled_twice_goes_on_as_its_twin_does(spark: SparkSession, cell: Cell, tmp_path: Path) -> None:
    stream, provider = cell
    rescaled_like_its_twin(spark, stream, provider, tmp_path, numbers=(2, 5, 3), query=query_file(stream, tmp_path))


@pytest.mark.parametrize("cell", _cells(1), ids=_named)
def test_a_query_of_one_partition_becomes_many_and_one_again(spark: SparkSession, cell: Cell, tmp_path: Path) -> None:
    rescaled_like_its_twin(spark, *cell, tmp_path, numbers=(1, 6, 1), first=2, between=1)


@pytest.mark.parametrize("cell", _cells(2), ids=_named)
def test_a_batch_that_is_written_and_not_committed_is_repeated_with_the_same_rows(
    spark: SparkSession, cell: Cell, tmp_path: Path
) -> None:
    killed_and_rescaled(spark, *cell, tmp_path, written=True)


@pytest.mark.parametrize("cell", _cells(3), ids=_named)
def test_a_batch_that_is_only_logged_is_computed_with_the_same_rows(
    spark: SparkSession, cell: Cell, tmp_path: Path
) -> None:
    killed_and_rescaled(spark, *cell, tmp_path, written=False)


@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
def test_the_file_sink_goes_on_when_its_log_is_compacted(
    spark: SparkSession, provider: Provider, tmp_path: Path
) -> None:
    file_sink_like_its_twin(spark, BY_NAME["windows-append"], provider, tmp_path, killed=False)


@pytest.mark.parametrize("provider", [HDFS, ROCKSDB, ROCKSDB_CHANGELOG], ids=str)
@pytest.mark.parametrize("name", ["windows-append", "join-left-outer", "session-windows"])
def test_a_batch_that_the_file_sink_has_is_skipped(
    spark: SparkSession, name: str, provider: Provider, tmp_path: Path
) -> None:
    file_sink_like_its_twin(spark, BY_NAME[name], provider, tmp_path, killed=True)


@pytest.mark.parametrize("name", ["aggregation-complete", "join-left-outer", "session-windows", "every-key"])
@pytest.mark.parametrize("codec", CODECS)
def test_snapshots_and_deltas_in_every_codec(spark: SparkSession, name: str, codec: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "spark.sql.streaming.stateStore.compression.codec": codec,
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": 2,
    }
    rescaled_like_its_twin(spark, BY_NAME[name], HDFS, tmp_path, numbers=(2, 3), first=12, **settings)


@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
def test_partitions_without_rows_stay_empty(spark: SparkSession, provider: Provider, tmp_path: Path) -> None:
    rescaled_like_its_twin(
        spark,
        BY_NAME["few-keys"],
        provider,
        tmp_path,
        numbers=(8, 12, 5),
        query=query_file(BY_NAME["few-keys"], tmp_path),
    )
