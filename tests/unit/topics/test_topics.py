"""What waits in topics, and what they have lost, by what brokers answer."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.topics import lag
from statecore.topics.gauge import Gauge
from statecore.topics.lag import PartitionLag
from statecore.topics.losses import losses
from statecore.topics.positions import Partition, read_position, written_position
from tests.support.brokers import ScriptedBrokers

PARTITIONS = st.builds(Partition, st.text(min_size=1), st.integers(0, 1_000))


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**60)))
def test_a_position_is_read_as_it_was_written(offsets: dict[Partition, int]) -> None:
    assert read_position(written_position(offsets)) == offsets


def test_a_position_is_written_as_spark_does() -> None:
    offsets = {Partition("b", 0): 1, Partition("a", 2): 5, Partition("a", 10): 7}
    assert written_position(offsets) == '{"a":{"2":5,"10":7},"b":{"0":1}}'


def test_the_fullest_partition_is_told_apart_and_the_oldest_record_counts() -> None:
    waiting = [
        PartitionLag("t", 0, 0, 0, 30, 1_000),
        PartitionLag("t", 1, 5, 0, 15, 400),
        PartitionLag("t", 2, 9, 0, 9),
    ]
    assert (lag.records(waiting), lag.skew(waiting), lag.oldest_age_ms(waiting, 1_500)) == (40, 2.25, 1_100)
    # A producer's clock may be ahead.
    assert lag.oldest_age_ms(waiting[:1], 900) == 0


def test_nothing_that_waits_is_told_apart_from_an_unknown_age() -> None:
    empty, unknown, silent = PartitionLag("t", 0, 3, 0, 3), PartitionLag("t", 0, 3, 0, 4), PartitionLag("t", 0, 3)
    assert (lag.records([silent]), lag.skew([silent]), lag.oldest_age_ms([silent], 9)) == (None, None, None)
    assert lag.records([silent, unknown]) == 1
    assert (lag.skew([empty]), lag.oldest_age_ms([empty], 9)) == (None, 0)
    assert lag.oldest_age_ms([unknown], 9) is None
    assert (lag.records([]), lag.skew([]), lag.oldest_age_ms([], 9)) == (0, None, 0)


def test_records_are_fetched_only_where_something_waits_and_the_oldest_has_changed() -> None:
    brokers = ScriptedBrokers({("t", 0): (0, 9), ("t", 1): (4, 9), ("t", 2): (0, 3), ("t", 3): (0, 2)}, 1_000)
    gauge = Gauge(cast(Any, brokers), assigned=False)
    positions = {Partition("t", 0): 5, Partition("t", 1): 2, Partition("t", 2): 3}
    found = gauge.measure(positions)
    # Expired records do not wait; a new partition is read from its beginning.
    assert [(each.partition, each.records, each.oldest_ms) for each in found] == [
        (0, 4, 1_005), (1, 5, 1_004), (2, 0, None), (3, 2, 1_000),
    ]  # fmt: skip
    gauge.measure({**positions, Partition("t", 0): 6})
    assert brokers.fetched[1] == {Partition("t", 0): 6}


def test_a_partition_that_is_gone_keeps_its_position() -> None:
    (found,) = Gauge(cast(Any, ScriptedBrokers({})), assigned=False).measure({Partition("t", 0): 5})
    assert found == PartitionLag("t", 0, 5, 5, 5)


@pytest.mark.parametrize(
    ("span", "known", "why", "records", "goes_on"),
    [
        ((0, 5), "first", None, None, None),
        ((5, 5), "first", None, None, None),
        ((7, 9), "first", "2 records have expired", 2, 7),
        ((0, 4), "first", "the newest records that were read are gone", None, 4),
        ((0, 4), None, "the newest records that were read are gone", None, 0),
        ((0, 99), "other", "the topic was deleted and made anew", None, 0),
    ],
)
def test_a_partition_loses_what_is_wanted_and_is_not_there(
    span: tuple[int, int], known: str | None, why: str | None, records: int | None, goes_on: int | None
) -> None:
    brokers = ScriptedBrokers({("t", 0): span})
    found = losses(cast(Any, brokers), {Partition("t", 0): 5}, {} if known is None else {"t": known}, assigned=False)
    assert [(each.why, each.records, each.goes_on) for each in found] == (
        [] if why is None else [(why, records, goes_on)]
    )


def test_an_added_partition_whose_first_records_have_expired_is_one_that_loses_them() -> None:
    brokers = ScriptedBrokers({("t", 0): (0, 9), ("t", 1): (4, 9), ("t", 2): (0, 9)})
    (found,) = losses(cast(Any, brokers), {Partition("t", 0): 5}, {}, assigned=False)
    assert (found.partition.number, found.wanted, found.records, found.goes_on) == (1, 0, 4, 4)


def test_of_a_topic_with_assigned_partitions_the_others_neither_wait_nor_are_lost() -> None:
    brokers = cast(Any, ScriptedBrokers({("t", 0): (0, 9), ("t", 1): (4, 9)}))
    position = {Partition("t", 0): 5}
    assert [(each.partition, each.records) for each in Gauge(brokers, assigned=True).measure(position)] == [(0, 4)]
    assert losses(brokers, position, {}, assigned=True) == []


def test_what_is_gone_altogether_is_told_apart() -> None:
    found = losses(
        cast(Any, ScriptedBrokers({("t", 0): (0, 9)})), {Partition("t", 1): 5, Partition("u", 0): 0}, {}, assigned=False
    )
    assert list(map(str, found)) == [
        "t-1 wants offset 5 and is gone (the topic has fewer partitions)",
        "u-0 wants offset 0 and is gone (there is no such topic)",
    ]
