"""Stands in for the answers of Kafka brokers about topics; tests/kafka has the brokers themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from statecore.errors import SourceError
from statecore.topics.brokers import Topic
from statecore.topics.positions import Partition


class ScriptedBrokers:
    """Topics of one partition each or more, with offsets from a beginning to an end.

    Attributes:
        ids: The id of each topic.
        spans: Beginning and end of each partition.
        is_away: Whether they do not answer.
        fetched: The offsets whose records were fetched.

    """

    def __init__(self, spans: Mapping[tuple[str, int], tuple[int, int]], time_ms: int = 0) -> None:
        self.spans = {Partition(*partition): span for partition, span in spans.items()}
        self.ids = {topic: "first" for topic, _ in spans}
        self.is_away = False
        self.fetched: list[dict[Partition, int]] = []
        self._time_ms = time_ms

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        if self.is_away:
            raise SourceError("found no answer")
        return {
            name: Topic(self.ids[name], frozenset(each for each in self.spans if each.topic == name))
            for name in names
            if name in self.ids
        }

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {each: self.spans[each][0] for each in partitions if each in self.spans}

    def ends(self, partitions: Iterable[Partition], *, is_all: bool = False) -> dict[Partition, int]:
        return {each: self.spans[each][1] for each in partitions if each in self.spans}

    def times_ms(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        self.fetched.append(dict(positions))
        return {each: self._time_ms + offset for each, offset in positions.items()}
