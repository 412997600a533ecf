"""State in RocksDB is read and laid out anew by Spark's own reader and writer, and a query goes on from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.queries.checkpoint import open_checkpoint
from tests.spark.queries.layouts import rewritten, rows_of
from tests.spark.queries.streams import BY_NAME, PROVIDERS, outputs, run, share_outputs

ROCKSDB, CHANGELOG, V2, V2_CHANGELOG = PROVIDERS[1:]

CELLS = [
    ("aggregation-update", ROCKSDB),
    ("aggregation-complete", V2_CHANGELOG),
    ("windows-append", CHANGELOG),
    ("global-aggregation", ROCKSDB),
    ("global-aggregation", V2),
    ("session-windows", CHANGELOG),
    ("session-windows-global", V2),
    ("distinct", ROCKSDB),
    ("distinct-within-watermark", V2),
    ("join-left-outer", ROCKSDB),
    ("join-full-outer", V2_CHANGELOG),
    ("join-left-outer-3", CHANGELOG),
    ("join-inner-3", V2),
    ("groups-with-state", V2),
    ("transform-with-state-in-pandas", ROCKSDB),
    ("transform-with-state-in-pandas", V2_CHANGELOG),
    ("transform-with-state-ttl", CHANGELOG),
    ("transform-with-state", V2),
    ("windows-of-join", ROCKSDB),
    ("windows-of-distinct", V2_CHANGELOG),
    ("every-key", ROCKSDB),
]


@pytest.mark.parametrize(("name", "provider"), CELLS, ids=[f"{name}-{provider}" for name, provider in CELLS])
def test_rows_survive_where_spark_looks_for_them_and_the_query_goes_on(spark, tmp_path, name, provider):
    stream = BY_NAME[name]
    source = run(spark, stream, tmp_path, stream.batches(0, 3), provider, partitions=2)
    share_outputs(tmp_path, "checkpoint", "five")
    before, misplaced = rows_of(spark, open_checkpoint(str(source)))
    assert before
    assert misplaced == 0

    target = rewritten(spark, source, tmp_path / "five", 5)

    after, misplaced = rows_of(spark, open_checkpoint(str(target)))
    assert after == before
    assert misplaced == 0
    goes_on(spark, stream, tmp_path, provider)


def goes_on(spark, stream, place: Path, provider) -> None:
    """Check that the query gives the same rows from the new checkpoint as from the old one."""
    run(spark, stream, place, stream.batches(3, 5), provider, partitions=2)
    run(spark, stream, place, (), provider, partitions=2, checkpoint="five")
    assert outputs(place, "five") == outputs(place)
    before, _ = rows_of(spark, open_checkpoint(str(place / "checkpoint")))
    after, misplaced = rows_of(spark, open_checkpoint(str(place / "five")))
    assert misplaced == 0
    if not stream.clocked:
        assert after == before
    else:
        assert after.keys() == before.keys()
