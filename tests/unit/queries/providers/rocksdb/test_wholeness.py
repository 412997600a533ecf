"""Snapshots and changelogs of state in RocksDB are checked as far back as Spark reads them, and no further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from statecore.errors import CheckpointDamagedError
from statecore.queries.providers.hdfs.codecs import codec
from statecore.queries.providers.rocksdb.wholeness import require_whole
from statecore.queries.reading.stores import StateStore
from statecore.storage import LocalFileStore
from tests.unit.queries.handmade import ROCKSDB, Handmade, Operator, make, unique_id
from tests.unit.queries.providers.rocksdb.test_recorded import zipped

STORE = StateStore(operator=0, name="default", partitions=1)
NO_SPARK = cast(Any, None)
"""Nothing but RocksDB's check of a table needs it, and no test here comes to that."""


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    """Return a checkpoint of four batches whose changelogs are yet to be written."""
    made = make(tmp_path, Operator(partitions=1), batches=4, provider=ROCKSDB, unique_ids=False)
    for path in (tmp_path / "state/0/0").glob("*[0-9]*"):
        path.unlink()
    return made


@pytest.fixture
def named(tmp_path: Path) -> Handmade:
    """Return the same in checkpoint format 2, where the commit names the files."""
    made = make(tmp_path, Operator(partitions=1), batches=4, provider=ROCKSDB, unique_ids=True)
    for path in (tmp_path / "state/0/0").glob("*[0-9]*"):
        path.unlink()
    return made


def changelog(content: bytes = b"\0\0\0\1k\0\0\0\1v\xff\xff\xff\xff") -> bytes:
    return codec("lz4").compress(memoryview(content))


def with_lineage(*versions: int) -> bytes:
    """Return a changelog that builds on versions."""
    lineage = json.dumps([{"version": each, "checkpointUniqueId": unique_id(0, 0, 0, each)} for each in versions])
    return changelog(b"\0\2v4" + len(lineage).to_bytes(2) + lineage.encode() + b"\1more")


def check(made: Handmade, checkpoint_format: int = 1) -> None:
    require_whole(NO_SPARK, LocalFileStore(made.root), STORE, 3, checkpoint_format, 1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_changelogs_are_whole_back_to_the_first(made: Handmade) -> None:
    for version in range(1, 5):
        made.write(f"state/0/0/{version}.changelog", changelog())
    check(made)


@pytest.mark.parametrize("version", range(1, 5))
def test_a_changelog_that_is_missing_is_named(made: Handmade, version: int) -> None:
    for each in {1, 2, 3, 4} - {version}:
        made.write(f"state/0/0/{each}.changelog", changelog())
    with pytest.raises(CheckpointDamagedError, match=rf"state/0/0/{version}\.changelog"):
        check(made)


@pytest.mark.parametrize("checksum", [True, False], ids=["with-checksum", "without"])
@pytest.mark.parametrize("version", range(1, 5))
def test_a_flipped_changelog_is_named(made: Handmade, version: int, checksum: bool) -> None:
    for each in range(1, 5):
        made.write(f"state/0/0/{each}.changelog", changelog(), checksum=checksum)
    flip(made.root / f"state/0/0/{version}.changelog")
    with pytest.raises(CheckpointDamagedError, match=rf"state/0/0/{version}\.changelog"):
        check(made)


def test_nothing_before_the_newest_snapshot_counts(made: Handmade) -> None:
    made.write("state/0/0/3.zip", zipped(5, sstFiles=[]))
    made.write("state/0/0/2.changelog", b"damaged")
    made.write("state/0/0/4.changelog", changelog())
    check(made)
    made.remove("state/0/0/4.changelog")
    with pytest.raises(CheckpointDamagedError, match=r"state/0/0/4\.changelog"):
        check(made)


def test_a_table_is_there_and_has_its_size(made: Handmade) -> None:
    made.write("state/0/0/4.zip", zipped(5))
    with pytest.raises(CheckpointDamagedError, match=r"no file state/0/0/SSTs/8-a\.sst"):
        check(made)
    made.write("state/0/0/SSTs/8-a.sst", b"123456")
    with pytest.raises(CheckpointDamagedError, match=r"8-a\.sst with 6 bytes, and 7 in"):
        check(made)


def test_a_changelog_names_those_that_it_builds_on(named: Handmade) -> None:
    of = {version: f"state/0/0/{version}_{unique_id(0, 0, 0, version)}" for version in range(1, 5)}
    named.write(f"{of[2]}.zip", zipped(5, sstFiles=[]))
    named.write(f"{of[3]}.changelog", with_lineage(2))
    named.write(f"{of[4]}.changelog", with_lineage(2, 3))
    # Of an attempt that failed.
    named.write("state/0/0/3_other.changelog", b"damaged")
    check(named, 2)
    flip(named.root / f"{of[3]}.changelog")
    with pytest.raises(CheckpointDamagedError, match=of[3]):
        check(named, 2)


@pytest.mark.parametrize("content", [b"", b"\0\2v1\0\0", b"\0\2v4\0\7[{}]\1", b"\0\2v4\0\1["], ids=repr)
def test_a_changelog_without_such_a_list_is_named(named: Handmade, content: bytes) -> None:
    newest = f"state/0/0/4_{unique_id(0, 0, 0, 4)}.changelog"
    named.write(newest, changelog(content))
    with pytest.raises(CheckpointDamagedError, match=newest):
        check(named, 2)


def test_a_partition_that_the_commit_does_not_name_is_refused(named: Handmade) -> None:
    with pytest.raises(CheckpointDamagedError, match="found no file named for state partition 1"):
        named.write(f"state/0/0/4_{unique_id(0, 0, 0, 4)}.zip", zipped(5, sstFiles=[]))
        require_whole(NO_SPARK, LocalFileStore(named.root), StateStore(0, "default", 2), 3, 2, 2)
