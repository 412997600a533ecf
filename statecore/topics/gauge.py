"""Measures the lag behind positions in topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from statecore.topics.lag import PartitionLag
from statecore.topics.positions import Partition

if TYPE_CHECKING:
    # It needs an optional package.
    from statecore.topics.brokers import Brokers


class Gauge:
    """Measures the topics of one source, again and again.

    Args:
        brokers: The brokers of the source.
        assigned: Whether it reads only the partitions that it has positions in, and none that are added.

    """

    def __init__(self, brokers: Brokers, *, assigned: bool) -> None:
        self._brokers = brokers
        self._assigned = assigned
        # While a partition's position stays, its oldest record does.
        self._times_ms: dict[tuple[Partition, int], int] = {}

    def measure(self, positions: Mapping[Partition, int]) -> tuple[PartitionLag, ...]:
        """Return the lag of each partition of the topics that these positions are in.

        A partition without a position is a new one, which is read from its beginning. Lost records do not count.

        Raises:
            SourceError: The brokers do not answer, or refuse.

        """
        topics = self._brokers.topics({each.topic for each in positions})
        there = [each for topic in topics.values() for each in topic.partitions]
        partitions = [each for each in there if each in positions or not self._assigned]
        begins, ends = self._brokers.beginnings(partitions), self._brokers.ends(partitions)
        lags, waiting = [], {}
        for each in sorted({*partitions, *positions}):
            position = positions.get(each, begins.get(each, 0))
            begin, end = begins.get(each, position), ends.get(each, position)
            lags.append(PartitionLag(*each, position=position, begin=begin, end=end))
            if max(position, begin) < end:
                waiting[each] = max(position, begin)
        oldest = self._oldest_ms(waiting)
        return tuple(replace(each, oldest_ms=oldest.get(Partition(each.topic, each.partition))) for each in lags)

    def _oldest_ms(self, waiting: Mapping[Partition, int]) -> dict[Partition, int]:
        known = {each: self._times_ms[each, at] for each, at in waiting.items() if (each, at) in self._times_ms}
        asked = {each: at for each, at in waiting.items() if each not in known}
        times_ms = known | self._brokers.times_ms(asked)
        self._times_ms = {(each, waiting[each]): at_ms for each, at_ms in times_ms.items()}
        return times_ms
