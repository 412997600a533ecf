"""``python -m examples.demo.trickle INPUT | SERVERS TOPIC``: flights trickle in until the process ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.feeder import Feeder, load_flights
from examples.demo.topic_feeder import TopicFeeder

ROWS = 500
SECONDS = 2.0


def later_flights(flights: pa.Table) -> Iterator[pa.Table]:
    """Yield the flights again, a few at a time: one year later, then two years later, and so on forever."""
    column = flights.schema.get_field_index("sched_dep")
    for years in count(1):
        year = pa.scalar(years * 365 * 86_400 * 1_000_000, pa.duration("us"))
        shifted = flights.set_column(column, flights.schema.field(column), pc.add(flights["sched_dep"], year))
        for start in range(0, shifted.num_rows, ROWS):
            yield shifted.slice(start, ROWS)


def main(*place: str) -> None:
    """Feed a directory or a topic, after its existing deliveries."""
    feeder = Feeder(Path(*place)) if len(place) == 1 else TopicFeeder(*place)
    for flights in later_flights(load_flights()):
        feeder.feed(flights)
        time.sleep(SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
