"""Finds records that a source has yet to read and that its topics no longer have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from statecore.topics.positions import Partition

if TYPE_CHECKING:
    # It needs an optional package.
    from statecore.topics.brokers import Brokers, Topic


class Loss(NamedTuple):
    """A Kafka partition whose next offset no longer exists.

    Attributes:
        wanted: The next offset.
        begin, end: Offset of the oldest record that is there, and behind the newest; None without the partition.
        records: How many are lost; None when unknown.
        goes_on: Offset to continue from; None without the partition.
        why: The cause, in words.

    """

    partition: Partition
    wanted: int
    begin: int | None
    end: int | None
    records: int | None
    goes_on: int | None
    why: str

    def __str__(self) -> str:
        """Return the next offset, and the offsets that exist."""
        if self.end is None:
            return f"{self.partition} wants offset {self.wanted} and is gone ({self.why})"
        there = f"has {self.begin} to {self.end}"
        return f"{self.partition} wants offset {self.wanted} and {there} ({self.why}; it would go on at {self.goes_on})"


def losses(
    brokers: Brokers, positions: Mapping[Partition, int], ids: Mapping[str, str], *, assigned: bool
) -> list[Loss]:
    """Return the partitions whose next offset no longer exists.

    An added partition is read from its beginning.

    Args:
        brokers: The brokers to ask.
        positions: Offset of the next record of each partition.
        ids: The id that each topic had when it was read; a topic without an id may be any.
        assigned: Whether the source ignores added partitions.

    Raises:
        SourceError: The brokers do not answer, or refuse.

    """
    topics = brokers.topics({each.topic for each in positions})
    existing = [each for topic in topics.values() for each in topic.partitions]
    there = [each for each in existing if each in positions or not assigned]
    # Not only up to the first open transaction: a position may be behind it.
    begins, ends = brokers.beginnings(there), brokers.ends(there, is_all=True)
    lost = []
    for each, wanted in sorted({**dict.fromkeys(there, 0), **positions}.items()):
        loss = _loss(each, wanted, topics.get(each.topic), ids.get(each.topic), begins.get(each), ends.get(each))
        if loss is not None:
            lost.append(loss)
    return lost


def _loss(
    partition: Partition, wanted: int, topic: Topic | None, known_id: str | None, begin: int | None, end: int | None
) -> Loss | None:
    if topic is None or begin is None or end is None:
        why = "there is no such topic" if topic is None else "the topic has fewer partitions"
        return Loss(partition, wanted, None, None, None, None, why)
    if known_id is not None and topic.id != known_id:
        return Loss(partition, wanted, begin, end, None, begin, "the topic was deleted and made anew")
    if wanted < begin:
        return Loss(partition, wanted, begin, end, begin - wanted, begin, f"{begin - wanted:,} records have expired")
    if wanted > end:
        # In the same topic, the remaining records have been read.
        goes_on = begin if known_id is None else end
        return Loss(partition, wanted, begin, end, None, goes_on, "the newest records that were read are gone")
    return None
