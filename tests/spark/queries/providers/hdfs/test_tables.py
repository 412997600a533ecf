"""State of the HDFS-backed provider is read as Spark reads it, and Spark goes on from what is written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PythonException

from statecore.errors import CheckpointRefusedError
from statecore.queries.copying.layout import lay_out
from statecore.queries.copying.staging import staged
from statecore.queries.providers.hdfs import tables
from statecore.queries.providers.state_rows import state_rows
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.rows.keys import key_schema
from statecore.queries.rows.placement import placed
from tests.spark.queries.streams import BY_NAME, HDFS, outputs, run, share_outputs, state
from tests.support.tiers import nightly

CHECKSUMS = {"spark__sql__streaming__stateStore__rowChecksum__enabled": "true"}


def codec(name):
    return {"spark__sql__streaming__stateStore__compression__codec": name}


def stores_of(checkpoint):
    return [(operator, store) for operator in checkpoint.operators for store in operator.stores]


def of_spark(spark, checkpoint, store):
    """Return (partition, key bytes, value bytes) of all rows, as Spark reads and encodes them again."""
    reader = spark.read.format("statestore").option("operatorId", store.operator).option("storeName", store.name)
    rows = reader.load(checkpoint.url)
    partitions = [row[0] for row in rows.select("partition_id").collect()]
    keys, values = (
        [
            bytes(row.getBytes())
            for row in rows.select(f"{side}.*")._jdf.queryExecution().executedPlan().executeCollect()
        ]
        for side in ("key", "value")
    )
    return Counter(zip(partitions, keys, values, strict=True))


def read(spark, checkpoint, operator, store):
    """Return the same of our reader, and the number of rows that Spark would look for in another partition."""
    rows = placed(state_rows(spark, checkpoint, operator, store), store.partitions).collect()
    skipped = 4 if checkpoint.conf.get("spark.sql.streaming.stateStore.rowChecksum.enabled") == "true" else 0
    found = Counter((row.partition, bytes(row.key_bytes), bytes(row.value_bytes)[skipped:]) for row in rows)
    return found, sum(row.partition != row.target for row in rows)


def rewritten(spark, source: Path, target: Path, partitions: int) -> Path:
    """Lay a checkpoint out for another number of partitions, without the proof."""
    checkpoint = open_checkpoint(str(source))
    with staged(str(target), checkpoint.url) as staging:
        lay_out(checkpoint, staging, partitions)
        for operator, store in stores_of(checkpoint):
            rows = placed(state_rows(spark, checkpoint, operator, store), partitions)
            tables.write_store(rows, staging.url, store, checkpoint.version, partitions, checkpoint.conf)
    return target


ROWS_OF = (
    "windows-append",
    "global-aggregation",
    "session-windows",
    "distinct-within-watermark",
    "join-full-outer",
    "groups-with-state",
    "every-key",
)
# The operators and the keys of those above, otherwise put together.
FURTHER = ("windows-of-join", "every-key-apart")


@pytest.mark.parametrize(
    "stream", [*(BY_NAME[name] for name in ROWS_OF), *(nightly(BY_NAME[name]) for name in FURTHER)], ids=str
)
def test_rows_are_those_that_spark_reads_and_lie_where_spark_looks(spark, tmp_path, stream):
    checkpoint = open_checkpoint(str(run(spark, stream, tmp_path, stream.batches(0, 3), partitions=3)))
    total = 0
    for operator, store in stores_of(checkpoint):
        found, misplaced = read(spark, checkpoint, operator, store)
        assert found == of_spark(spark, checkpoint, store)
        assert misplaced == 0
        total += found.total()
    assert total


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        nightly("aggregation-update", codec("zstd")),
        nightly("windows-append", CHECKSUMS),
        nightly("global-aggregation", codec("snappy")),
        ("session-windows", codec("lzf")),
        nightly("join-left-outer", CHECKSUMS | codec("zstd")),
        ("every-key", {}),
    ],
)
def test_a_query_goes_on_from_what_is_written(spark, tmp_path, name, conf):
    stream = BY_NAME[name]
    source = run(spark, stream, tmp_path, stream.batches(0, 3), **conf)
    before = state(spark, stream, source, HDFS, clocks=True)

    target = rewritten(spark, source, tmp_path / "seven", 7)

    assert state(spark, stream, target, HDFS, clocks=True) == before
    share_outputs(tmp_path, "checkpoint", "seven")
    run(spark, stream, tmp_path, stream.batches(3, 5), **conf)
    run(spark, stream, tmp_path, checkpoint="seven", **conf)
    assert outputs(tmp_path, "seven") == outputs(tmp_path)
    assert state(spark, stream, target, HDFS, clocks=True) == state(spark, stream, source, HDFS, clocks=True)


def test_every_partition_gets_a_file_even_without_rows(spark, tmp_path):
    stream = BY_NAME["aggregation-update"]
    source = run(spark, stream, tmp_path, [stream.batch(0)[:2]])
    target = rewritten(spark, source, tmp_path / "forty", 40)
    files = sorted((target / "state/0").glob("*/1.snapshot"))
    assert [path.parent.name for path in files] == sorted(map(str, range(40)))
    assert state(spark, stream, target, HDFS, clocks=True) == state(spark, stream, source, HDFS, clocks=True)


def test_a_store_without_any_row_gets_its_files(spark, tmp_path):
    stream = BY_NAME["aggregation-update"]
    source = run(spark, stream, tmp_path, [[]])
    target = rewritten(spark, source, tmp_path / "five", 5)
    assert len(list((target / "state/0").glob("*/1.snapshot"))) == 5
    share_outputs(tmp_path, "checkpoint", "five")
    run(spark, stream, tmp_path, stream.batches(0, 2))
    run(spark, stream, tmp_path, checkpoint="five")
    assert state(spark, stream, target, HDFS, clocks=True) == state(spark, stream, source, HDFS, clocks=True)


def test_rows_that_spark_knows_to_be_none_get_their_files(spark, tmp_path):
    stream = BY_NAME["aggregation-update"]
    checkpoint = open_checkpoint(str(run(spark, stream, tmp_path, stream.batches(0, 1))))
    ((operator, store),) = stores_of(checkpoint)
    nothing = placed(state_rows(spark, checkpoint, operator, store), 3).where("false")
    tables.write_store(nothing, str(tmp_path / "nothing"), store, 1, 3, checkpoint.conf)
    assert sorted(path.parent.name for path in (tmp_path / "nothing/state/0").glob("*/1.snapshot")) == ["0", "1", "2"]


def test_a_store_without_keys_stays_in_the_partition_that_spark_makes(spark, tmp_path):
    stream = BY_NAME["global-aggregation"]
    source = run(spark, stream, tmp_path, stream.batches(0, 2))
    target = rewritten(spark, source, tmp_path / "five", 5)
    folders = [sorted(each.name for each in (place / "state/0").iterdir()) for place in (source, target)]
    assert folders == [["0", "_metadata"]] * 2


def test_damage_is_named_by_the_error_of_the_job(spark, tmp_path):
    stream = BY_NAME["aggregation-update"]
    checkpoint = open_checkpoint(str(run(spark, stream, tmp_path, stream.batches(0, 2))))
    path = tmp_path / "checkpoint/state/0/1/2.delta"
    path.write_bytes(path.read_bytes()[:-1])
    ((operator, store),) = stores_of(checkpoint)
    with pytest.raises(PythonException, match=r"CheckpointDamagedError: found state/0/1/2\.delta in the checkpoint"):
        state_rows(spark, checkpoint, operator, store).collect()


def test_an_unknown_codec_is_refused_before_a_job_starts(spark, tmp_path):
    stream = BY_NAME["aggregation-update"]
    checkpoint = open_checkpoint(str(run(spark, stream, tmp_path, stream.batches(0, 1))))
    ((_, store),) = stores_of(checkpoint)
    keys = key_schema(spark, checkpoint, store)
    conf = {"spark.sql.streaming.stateStore.compression.codec": "brotli"}
    with pytest.raises(CheckpointRefusedError, match="brotli"):
        tables.read_store(spark, checkpoint.url, store, checkpoint.version, keys, len(keys), conf)
