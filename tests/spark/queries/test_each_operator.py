"""Each operator with state, once: rescaled, it goes on as its twin does. ``make queries`` tries more."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.queries.cells import file_sink_like_its_twin, killed_and_rescaled, query_file, rescaled_like_its_twin
from tests.spark.queries.streams import (
    BY_NAME,
    HDFS,
    ROCKSDB,
    ROCKSDB_CHANGELOG,
    ROCKSDB_V2,
    ROCKSDB_V2_CHANGELOG,
    Provider,
)
from tests.support.tiers import nightly

# `make nightly` tries each on every provider: tests/queries/test_matrix.py.
CELLS = [
    ("aggregation-update", ROCKSDB),
    ("windows-append", HDFS),
    ("global-aggregation", ROCKSDB_V2),
    ("session-windows", ROCKSDB_V2_CHANGELOG),
    ("distinct", HDFS),
    ("distinct-within-watermark", ROCKSDB_V2),
    ("join-left-outer", HDFS),
    ("join-inner-3", ROCKSDB_V2),
    ("groups-with-state", HDFS),
    ("windows-of-distinct", ROCKSDB_CHANGELOG),
    ("transform-with-state-in-pandas", ROCKSDB),
    ("transform-with-state-ttl", ROCKSDB_V2_CHANGELOG),
    ("every-key", HDFS),
]


@pytest.mark.parametrize(("name", "provider"), CELLS, ids=[f"{name}-{provider}" for name, provider in CELLS])
def test_a_rescaled_query_goes_on_as_its_twin_does(
    spark: SparkSession, name: str, provider: Provider, tmp_path: Path
) -> None:
    stream = BY_NAME[name]
    # test_trial.py tries each of them.
    query = query_file(stream, tmp_path) if name == "session-windows" else None
    rescaled_like_its_twin(spark, stream, provider, tmp_path, numbers=(2, 3), first=2, between=1, query=query)


@pytest.mark.parametrize("provider", [ROCKSDB_V2, nightly(HDFS)], ids=str)
def test_a_batch_that_the_sink_has_and_the_query_has_not_committed_gives_the_same_rows_again(
    spark: SparkSession, provider: Provider, tmp_path: Path
) -> None:
    killed_and_rescaled(spark, BY_NAME["windows-update"], provider, tmp_path, written=True)


@pytest.mark.parametrize("provider", [HDFS, nightly(ROCKSDB_CHANGELOG)], ids=str)
def test_a_batch_that_the_sink_has_and_skips_leaves_its_state(
    spark: SparkSession, provider: Provider, tmp_path: Path
) -> None:
    file_sink_like_its_twin(spark, BY_NAME["windows-append"], provider, tmp_path, killed=True, batches=6)
