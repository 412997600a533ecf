"""What Spark recorded beside state in RocksDB is read without Spark, and checked."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from statecore.errors import CheckpointDamagedError
from statecore.queries.providers.rocksdb.recorded import read_snapshot, recorded_keys
from statecore.queries.reading.stores import StateStore
from statecore.storage import LocalFileStore

STORE = StateStore(operator=1, name="default", partitions=2)


def zipped(keys: int, internal: int = 0, **more: object) -> bytes:
    """Return a snapshot's zip file as Spark writes it."""
    body = {"sstFiles": [{"localFileName": "8.sst", "dfsSstFileName": "8-a.sst", "sizeBytes": 7}], "numKeys": keys}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("CURRENT", "MANIFEST-000012\n")
        archive.writestr("metadata", "v2\n" + json.dumps({**body, "numInternalKeys": internal, **more}))
    return data.getvalue()


@pytest.fixture
def files(tmp_path) -> LocalFileStore:
    return LocalFileStore(tmp_path)


def test_keys_of_each_partition_are_those_of_the_query_and_of_spark(files):
    files.write("state/1/0/3.zip", zipped(5, internal=2))
    files.write("state/1/1/3.zip", zipped(0))
    assert recorded_keys(files, STORE, 3) == (7, 0)


def test_a_store_with_a_name_has_a_folder_in_each_partition(files):
    files.write("state/1/0/left/3.zip", zipped(5))
    assert recorded_keys(files, StateStore(1, "left", 1), 3) == (5,)


def test_in_format_2_the_commit_names_the_file(files):
    files.write("state/1/0/3_mine.zip", zipped(5))
    files.write("state/1/0/3_of-a-failed-attempt.zip", zipped(6))
    files.write("state/1/1/3_yours.zip", zipped(8))
    assert recorded_keys(files, STORE, 3, ["mine", "yours"]) == (5, 8)


def test_a_commit_of_a_query_without_keys_names_one_partition(files):
    files.write("state/1/0/3_mine.zip", zipped(1))
    assert recorded_keys(files, STORE, 3, ["mine"]) == (1, None)


def test_a_changelog_does_not_say_how_many_keys_there_are(files):
    files.write("state/1/0/3.changelog", b"")
    files.write("state/1/0/2.zip", zipped(4))
    files.write("state/1/1/3.zip", zipped(4))
    assert recorded_keys(files, STORE, 3) == (None, 4)


def test_keys_that_spark_did_not_count_are_unknown(files):
    files.write("state/1/0/3.zip", zipped(-1, internal=-1))
    assert recorded_keys(files, StateStore(1, "default", 1), 3) == (None,)


def test_a_snapshot_names_its_tables(files):
    files.write("state/1/0/3.zip", zipped(5))
    found = read_snapshot(files, "state/1/0/3.zip")
    assert found is not None
    assert found.tables == (("state/1/0/SSTs/8-a.sst", 7),)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        zipped(5)[:60],
        zipped(5, numKeys="many"),
    ],
    ids=["empty", "cut", "no-number"],
)
def test_a_snapshot_that_is_not_whole_is_named(files, damaged):
    files.write("state/1/0/3.zip", damaged)
    with pytest.raises(CheckpointDamagedError, match=r"state/1/0/3\.zip"):
        recorded_keys(files, StateStore(1, "default", 1), 3)


def test_a_flipped_bit_is_noticed_or_does_not_matter(files):
    whole = zipped(5, internal=2)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        files.write("state/1/0/3.zip", bytes(damaged))
        try:
            assert recorded_keys(files, StateStore(1, "default", 1), 3) == (7,), place
        except CheckpointDamagedError as error:
            assert "state/1/0/3.zip" in str(error)
