"""What Spark does with files that differ from their checksums, or are cut, which our messages tell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from statecore.errors import CheckpointDamagedError
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.files import is_hidden_checksum
from tests.spark.queries.streams import (
    BY_NAME,
    HDFS,
    ROCKSDB,
    ROCKSDB_V2,
    ROCKSDB_V2_CHANGELOG,
    Kill,
    Provider,
    feed,
    outputs,
    run,
)
from tests.support.tiers import nightly

STREAM = BY_NAME["aggregation-update"]


def make(spark, place: Path, provider: Provider, kill: Kill | None = None) -> Path:
    """Make a checkpoint of three batches, and one more file of input."""
    checkpoint = run(spark, STREAM, place, STREAM.batches(0, 3), provider, kill=kill)
    feed(place, STREAM, STREAM.batches(3, 4))
    return checkpoint


def goes_on(spark, place: Path, provider: Provider) -> bool:
    """Return whether Spark runs the next batch."""
    try:
        run(spark, STREAM, place, (), provider)
    except StreamingQueryException:
        return False
    return (place / "checkpoint/commits/3").exists()


def falsify_hadoops(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def falsify_sparks(path: Path) -> None:
    recorded = json.loads(path.read_text())
    path.write_text(json.dumps({**recorded, "value": recorded["value"] ^ 1}))
    (path.parent / f".{path.name}.crc").unlink()


FALSIFIED = [
    # Of all files: logs, metadata, sources and state.
    (HDFS, "**/.*.crc", True),
    nightly(ROCKSDB_V2_CHANGELOG, "**/.*.crc", True),
    nightly(ROCKSDB_V2, "state/*/*/.*.zip.crc", True),
    nightly(ROCKSDB, "state/*/*/.*.zip.crc", False),
    nightly(ROCKSDB_V2, "state/*/*/*.zip.crc", False),
    nightly(ROCKSDB_V2_CHANGELOG, "state/*/*/*.changelog.crc", False),
]


@pytest.mark.parametrize(("provider", "files", "expected"), FALSIFIED, ids=str)
def test_which_checksums_spark_compares(spark, tmp_path, provider, files, expected):
    checkpoint = make(spark, tmp_path, provider)
    falsified = [each for each in checkpoint.glob(files) if is_hidden_checksum(each.name) == files.count("/.")]
    for path in falsified:
        (falsify_hadoops if is_hidden_checksum(path.name) else falsify_sparks)(path)
    assert falsified
    assert goes_on(spark, tmp_path, provider) == expected


@pytest.mark.parametrize(
    ("provider", "is_written"), [(HDFS, False), nightly(ROCKSDB, False), nightly(ROCKSDB_V2, True)], ids=str
)
def test_spark_writes_its_own_checksums_in_format_2_alone(spark, tmp_path, provider, is_written):
    checkpoint = run(spark, STREAM, tmp_path, STREAM.batches(0, 1), provider, sink="noop")
    assert any(not is_hidden_checksum(each.name) for each in checkpoint.rglob("*.crc")) == is_written


def test_a_cut_log_of_a_batch_that_is_not_committed(spark, tmp_path):
    checkpoint = make(spark, tmp_path, HDFS, Kill(2, True))
    log, checksum = checkpoint / "offsets/2", checkpoint / "offsets/.2.crc"
    log.write_bytes(log.read_bytes()[:100])
    with pytest.raises(CheckpointDamagedError, match=r"remove offsets/2 and offsets/\.2\.crc"):
        open_checkpoint(str(checkpoint))
    with pytest.raises(StreamingQueryException):
        run(spark, STREAM, tmp_path, ())
    log.unlink()
    shutil.copytree(checkpoint, tmp_path / "with-the-checksum")
    with pytest.raises(StreamingQueryException, match="concurrently"):
        run(spark, STREAM, tmp_path, (), checkpoint="with-the-checksum")
    checksum.unlink()
    # What came in meanwhile is read, too: a sink that has the batch's rows already gets others.
    run(spark, STREAM, tmp_path, ())
    first, again = outputs(tmp_path)[2]
    assert first != again
