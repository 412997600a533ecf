"""The two logs: what is changed in them, and that all else stays to the byte."""

from __future__ import annotations

import json

import pytest

from statecore.queries.reading.logs import SHUFFLE_PARTITIONS, STATE_PARTITIONS, parse_commit, parse_offsets

CONF = {SHUFFLE_PARTITIONS: "2", "spark.sql.streaming.join.stateFormatVersion": "2", "x": "ünï"}
OFFSETS = (
    "v1\n"
    + json.dumps(
        {"batchWatermarkMs": 5, "batchTimestampMs": 6, "conf": CONF}, separators=(",", ":"), ensure_ascii=False
    )
    + '\n{"logOffset":1}\n-\n{ "not" : "as we would write it" }'
).encode()
SOURCE_INFO = {"0": {"sourceId": "0", "version": 1}}
OFFSETS_V2 = (
    "v2\n"
    + json.dumps({"batchWatermarkMs": 5, "conf": CONF, "sourceMetadataInfo": SOURCE_INFO}, separators=(",", ":"))
    + '\nevents:{"logOffset":1}\nother:-'
).encode()
COMMITS = {
    "v1": b'v1\n{"nextBatchWatermarkMs":7}',
    "v2": b'v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a"],["b"]],"1":[["c","d"],["e","f"]]}}',
    "v2 without ids": b'v2\n{"nextBatchWatermarkMs":7}',
    "v3": b'v3\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a"]]},"sinkMetadataMap":{"s":{"id":"s","n":1}}}',
}


@pytest.mark.parametrize("data", [OFFSETS, OFFSETS_V2], ids=["v1", "v2"])
def test_an_offset_log_is_written_as_it_was_read(data: bytes) -> None:
    text = data.decode()
    found = parse_offsets(data, "offsets/1")
    assert json.loads(found.encode().decode().split("\n")[1]) == json.loads(text.split("\n")[1])
    assert found.encode().decode().split("\n")[2:] == text.split("\n")[2:]
    assert parse_offsets(OFFSETS, "offsets/1").encode() == OFFSETS


def test_only_the_number_of_partitions_changes() -> None:
    before, after = (
        log.metadata for log in (parse_offsets(OFFSETS_V2, ""), parse_offsets(OFFSETS_V2, "").with_partitions(5))
    )
    assert after["conf"] == {**CONF, SHUFFLE_PARTITIONS: "5"}
    assert {**after, "conf": None} == {**before, "conf": None}
    assert parse_offsets(OFFSETS, "").with_partitions(5).sources == parse_offsets(OFFSETS, "").sources


def test_the_internal_number_is_changed_where_it_was_logged_and_stays_absent_elsewhere() -> None:
    log = parse_offsets(OFFSETS, "")
    assert STATE_PARTITIONS not in log.with_partitions(5).conf
    logged = parse_offsets(OFFSETS.replace(b'"x"', f'"{STATE_PARTITIONS}"'.encode()), "")
    assert logged.with_partitions(5).conf[STATE_PARTITIONS] == "5"


def test_continuous_processing_logs_no_settings() -> None:
    found = parse_offsets(b'v1\n\n{"0":3}', "")
    assert (found.metadata, found.conf, found.sources) == ({}, {}, ('{"0":3}',))
    assert found.encode() == b'v1\n\n{"0":3}'


@pytest.mark.parametrize("data", COMMITS.values(), ids=COMMITS)
def test_a_commit_is_written_as_it_was_read(data: bytes) -> None:
    assert parse_commit(data, "commits/1").encode() == data


def test_a_commit_keeps_all_but_its_ids() -> None:
    found = parse_commit(COMMITS["v3"], "").with_unique_ids({0: (("x",), ("y",))})
    assert found.encode() == (
        b'v3\n{"nextBatchWatermarkMs":7,"sinkMetadataMap":{"s":{"id":"s","n":1}},"stateUniqueIds":{"0":[["x"],["y"]]}}'
    )
    assert found.unique_ids == {0: (("x",), ("y",))}
    assert found.with_unique_ids(None).encode() == (
        b'v3\n{"nextBatchWatermarkMs":7,"sinkMetadataMap":{"s":{"id":"s","n":1}}}'
    )


def test_a_commit_of_version_1_has_no_room_for_ids() -> None:
    log = parse_commit(COMMITS["v1"], "")
    assert log.with_unique_ids(None).encode() == COMMITS["v1"]
    with pytest.raises(ValueError, match="version 1"):
        log.with_unique_ids({0: (("x",),)})
