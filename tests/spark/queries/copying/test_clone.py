"""A query of Spark goes on from a clone as from the checkpoint itself."""

from __future__ import annotations

import shutil

import pytest

from statecore.queries.copying.clone import clone
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.show import show
from tests.spark.queries.streams import BY_NAME, HDFS, ROCKSDB_V2_CHANGELOG, Kill, outputs, run, share_outputs
from tests.support.tiers import nightly

SINK, NO_SINK = True, False
CELLS = [
    ("aggregation-update", HDFS, SINK),
    ("global-aggregation", HDFS, NO_SINK),
    nightly("join-left-outer", ROCKSDB_V2_CHANGELOG, NO_SINK),
    ("transform-with-state-in-pandas", ROCKSDB_V2_CHANGELOG, SINK),
    nightly("aggregation-update", HDFS, NO_SINK),
    nightly("global-aggregation", HDFS, SINK),
    nightly("join-left-outer", ROCKSDB_V2_CHANGELOG, SINK),
    nightly("transform-with-state-in-pandas", ROCKSDB_V2_CHANGELOG, NO_SINK),
]


# Killed when the sink has its batch, or before.
@pytest.mark.parametrize(("name", "provider", "written"), CELLS, ids=str)
def test_a_query_goes_on_from_a_clone(spark, tmp_path, name, provider, written):
    stream = BY_NAME[name]
    source = run(spark, stream, tmp_path, stream.batches(0, 3), provider, kill=Kill(2, written))
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    share_outputs(tmp_path, "checkpoint", "clone")

    made = clone(open_checkpoint(str(source)), str(tmp_path / "clone"))

    assert (made.batch, made.pending) == (1, 2)
    run(spark, stream, tmp_path, stream.batches(3, 5), provider, checkpoint="clone")
    # What the clone's query has written and removed is not seen in the checkpoint.
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before
    run(spark, stream, tmp_path, (), provider)
    expected = outputs(tmp_path, "checkpoint")
    assert expected
    assert outputs(tmp_path, "clone") == expected
    assert len(show(open_checkpoint(str(tmp_path / "clone"))).operators) == len(open_checkpoint(str(source)).operators)


def test_a_clone_needs_nothing_of_the_checkpoint(spark, tmp_path):
    stream, provider = BY_NAME["transform-with-state-in-pandas"], ROCKSDB_V2_CHANGELOG
    source = run(spark, stream, tmp_path, stream.batches(0, 2), provider)
    clone(open_checkpoint(str(source)), str(tmp_path / "clone"))
    shutil.rmtree(source)
    run(spark, stream, tmp_path, stream.batches(2, 3), provider, checkpoint="clone")
    assert open_checkpoint(str(tmp_path / "clone")).batch >= 2
