"""Positions in topics, as Spark's connector writes them: ``{"orders": {"0": 38, "1": 22}}``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        """Return its name, as Kafka's tools write it."""
        return f"{self.topic}-{self.number}"


def read_position(position: str) -> dict[Partition, int]:
    """Return the offset of the next record of each partition."""
    return {
        Partition(topic, int(number)): offset
        for topic, partitions in json.loads(position).items()
        for number, offset in partitions.items()
    }


def written_position(offsets: Mapping[Partition, int]) -> str:
    """Return a position for Spark's connector."""
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    for partition, offset in sorted(offsets.items()):
        topics[partition.topic][str(partition.number)] = offset
    return json.dumps(topics, separators=(",", ":"))
