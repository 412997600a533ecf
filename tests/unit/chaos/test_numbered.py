"""The truth of the campaign with Kafka sees each record that is lost, doubled or out of order."""

from __future__ import annotations

import json
import re

import pytest

from stack.kafka import Record
from tests.chaos.kafka.truth import Numbered

FED = [("a", 0), ("b", 1), ("a", 2)]


def record(k: str, n: int, seen: int, partition: int = 0) -> Record:
    return Record(partition, k.encode(), json.dumps({"k": k, "n": n, "seen": seen}).encode())


@pytest.fixture
def numbered() -> Numbered:
    made = Numbered()
    made.feed(FED)
    return made


RECORDS = [record("b", 1, 1, partition=1), record("a", 0, 1), record("a", 2, 2)]


def test_records_once_each_and_in_order_are_right_whatever_the_order_of_partitions(numbered: Numbered) -> None:
    numbered.find(RECORDS)
    verdict = numbered.verdict()
    assert (verdict.differences, verdict.lost, verdict.doubled) == ([], 0, 0)


def test_a_record_lost_and_one_doubled_are_counted(numbered: Numbered) -> None:
    numbered.find([*RECORDS[1:], RECORDS[2]])
    verdict = numbered.verdict()
    assert (verdict.lost, verdict.doubled) == (1, 1)
    assert "too many 1" in verdict.differences[0] and "missing 1" in verdict.differences[0]


def test_a_record_counted_from_wrong_state_is_lost_and_doubled(numbered: Numbered) -> None:
    numbered.find([*RECORDS[:2], record("a", 2, 1)])
    assert (numbered.verdict().lost, numbered.verdict().doubled) == (1, 1)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([RECORDS[0], RECORDS[2], RECORDS[1]], r"\('a', 0, 1\) of key 'a' follows on \('a', 2, 2\)"),
        ([*RECORDS[:2], record("a", 2, 2, partition=2)], "key 'a' is in partitions 0 and 2"),
        ([*RECORDS[:2], Record(0, b"b", RECORDS[2].value)], "of key 'b'"),
    ],
)
def test_a_broken_order_is_told(numbered: Numbered, records: list[Record], said: str) -> None:
    numbered.find(records)
    verdict = numbered.verdict()
    assert (verdict.lost, verdict.doubled) == (0, 0)
    assert re.search(said, verdict.differences[0])
