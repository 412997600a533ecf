"""A checkpoint in S3 is rescaled there, and the query goes on from it as its twin does from the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statecore.queries.copying.clone import clone
from statecore.queries.proving.verify import verify
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.rescale import rescale
from tests.spark.queries.cells import TWIN, assert_same_outputs, assert_same_state, query_file
from tests.spark.queries.streams import (
    BY_NAME,
    HDFS,
    ROCKSDB_V2_CHANGELOG,
    Provider,
    run,
    share_outputs,
)


@pytest.mark.parametrize(
    ("name", "provider"),
    [("windows-append", HDFS), ("transform-with-state-in-pandas", ROCKSDB_V2_CHANGELOG)],
    ids=["hdfs", "rocksdb"],
)
def test_a_checkpoint_is_rescaled_in_s3(
    spark: SparkSession, name: str, provider: Provider, tmp_path: Path, s3_url: str
) -> None:
    stream = BY_NAME[name]
    path = run(spark, stream, tmp_path, stream.batches(0, 2), provider)
    clone(open_checkpoint(str(path)), f"{s3_url}/old")
    query = query_file(stream, tmp_path)
    made = rescale(f"{s3_url}/old", f"{s3_url}/new", 3, query, spark=spark)
    proof = verify(f"{s3_url}/old", f"{s3_url}/new", query, spark=spark)
    assert made.proof.rows == proof.rows > 0
    assert made.proof.restart and proof.restart
    clone(open_checkpoint(f"{s3_url}/new"), str(tmp_path / "back"))
    share_outputs(tmp_path, TWIN, "back")
    run(spark, stream, tmp_path, stream.batches(2, 3), provider, checkpoint="back")
    run(spark, stream, tmp_path, (), provider)
    assert_same_outputs(tmp_path, "back")
    assert_same_state(spark, stream, provider, tmp_path, TWIN, "back", clocks=False)
