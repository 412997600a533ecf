"""Settings that change what a checkpoint looks like: covered, or refused by name; never wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from statecore.errors import CheckpointRefusedError
from statecore.queries.rescale import rescale
from tests.spark.queries.cells import query_file, rescaled_like_its_twin, tree
from tests.spark.queries.streams import (
    BY_NAME,
    HDFS,
    PROVIDERS,
    ROCKSDB,
    ROCKSDB_V2,
    ROCKSDB_V2_CHANGELOG,
    Limit,
    Provider,
    Stream,
    run,
)

_STREAMING = "spark.sql.streaming"
_INTERNAL = f"{_STREAMING}.internal.stateStore.partitions"
BOTH = (HDFS, ROCKSDB_V2)

COVERED: tuple[tuple[str, str, str], ...] = (
    ("aggregation-update", f"{_STREAMING}.aggregation.stateFormatVersion", "1"),
    ("aggregation-complete", _INTERNAL, "2"),
    ("join-left-outer", f"{_STREAMING}.stateStore.skipNullsForStreamStreamJoins.enabled", "true"),
    ("windows-append", f"{_STREAMING}.statefulOperator.alwaysNullableOutput.enabled", "false"),
    ("windows-append", f"{_STREAMING}.noDataMicroBatches.enabled", "false"),
    ("distinct", "spark.sql.dropDuplicates.deterministicKeyOrder.enabled", "false"),
    ("aggregation-update", "spark.sql.adaptive.enabled", "false"),
    ("aggregation-update", f"{_STREAMING}.offsetLog.formatVersion", "2"),
    ("join-left-outer", f"{_STREAMING}.minBatchesToRetain", "2"),
)
# By default, Spark keeps checksums of files and none of rows.
CHECKSUMS = tuple(
    (name, setting, value)
    for name in ("aggregation-update", "join-inner", "distinct-within-watermark")
    for setting, value in (
        (f"{_STREAMING}.stateStore.rowChecksum.enabled", "true"),
        (f"{_STREAMING}.checkpoint.fileChecksum.enabled", "false"),
    )
)


def _named(value: object) -> str | None:
    return value.removeprefix(f"{_STREAMING}.") if isinstance(value, str) else str(value)


@pytest.mark.parametrize("provider", BOTH, ids=str)
@pytest.mark.parametrize(("name", "setting", "value"), COVERED, ids=_named)
def test_a_setting_that_is_covered(
    spark: SparkSession, name: str, setting: str, value: str, provider: Provider, tmp_path: Path
) -> None:
    stream = BY_NAME[name]
    query = query_file(stream, tmp_path)
    settings: dict[str, Any] = {setting: value}
    rescaled_like_its_twin(spark, stream, provider, tmp_path, numbers=(2, 5, 3), query=query, **settings)


@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
@pytest.mark.parametrize(("name", "setting", "value"), CHECKSUMS, ids=_named)
def test_with_and_without_checksums(
    spark: SparkSession, name: str, setting: str, value: str, provider: Provider, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {setting: value}
    rescaled_like_its_twin(spark, BY_NAME[name], provider, tmp_path, numbers=(2, 3), first=2, between=1, **settings)


REFUSED: tuple[tuple[Stream, Provider, dict[str, Any], str], ...] = (
    (Limit("limit"), HDFS, {}, "limit"),
    (Limit("limit"), ROCKSDB, {}, "limit"),
    (BY_NAME["groups-with-state"], HDFS, {f"{_STREAMING}.flatMapGroupsWithState.stateFormatVersion": "1"}, "format 1"),
    (BY_NAME["join-inner"], ROCKSDB, {f"{_STREAMING}.join.stateFormatVersion": "4"}, "format 4"),
    (BY_NAME["join-left-outer"], ROCKSDB_V2, {f"{_STREAMING}.join.stateFormatVersion": "4"}, "format 4"),
    (BY_NAME["transform-with-state"], ROCKSDB, {f"{_STREAMING}.stateStore.encodingFormat": "avro"}, "avro"),
    (
        BY_NAME["aggregation-update"],
        HDFS,
        {f"{_STREAMING}.statefulOperator.useStrictDistribution": "false"},
        "useStrictDistribution",
    ),
)


@pytest.mark.parametrize(
    ("stream", "provider", "settings", "reason"), REFUSED, ids=[f"{each[0]}-{each[1]}-{each[3]}" for each in REFUSED]
)
def test_what_is_not_covered_is_refused_by_name(
    spark: SparkSession, stream: Stream, provider: Provider, settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = run(spark, stream, tmp_path, stream.batches(0, 2), provider, **settings)
    before = tree(path)
    with pytest.raises(CheckpointRefusedError, match=reason):
        rescale(str(path), str(tmp_path / "target"), 3, spark=spark)
    assert tree(path) == before
    assert not (tmp_path / "target").exists()


ONE_OR_THE_OTHER: tuple[tuple[Stream, dict[str, Any]], ...] = (
    (BY_NAME["windows-append"], {f"{_STREAMING}.useStreamlineAggregator": "true"}),
)


@pytest.mark.parametrize("provider", [HDFS, ROCKSDB, ROCKSDB_V2_CHANGELOG], ids=str)
@pytest.mark.parametrize(("stream", "settings"), ONE_OR_THE_OTHER, ids=_named)
def test_what_may_be_covered_is_right_or_refused(
    spark: SparkSession, stream: Stream, provider: Provider, settings: dict[str, Any], tmp_path: Path
) -> None:
    try:
        rescaled_like_its_twin(spark, stream, provider, tmp_path, **settings)
    except CheckpointRefusedError as refused:
        assert str(refused).count(";") >= 2
        assert not (tmp_path / "rescaled-1").exists()
