"""A driver whose publisher waits at armed moments of a transaction; spark-submit starts this file."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from statecore.runtime.generation import patience
from statecore.runtime.programs.stream import main
from statecore.runtime.sinks import kafka_publisher
from statecore.snapshot.settings import DriverSettings
from tests.chaos.kafka.moments import Moment, moments

_moments = moments()
_produce = kafka_publisher._produce


class _Producer(Producer):
    def begin_transaction(self) -> None:
        _moments.wait(Moment.BEFORE, lambda: None)
        super().begin_transaction()

    def commit_transaction(self, *arguments: Any) -> None:
        _moments.wait(Moment.MARKER_SENT, self.flush)
        super().commit_transaction(*arguments)
        _moments.wait(Moment.COMMITTED, lambda: None)


def _waiting(producer: Producer, topic: str, records: kafka_publisher.Records) -> None:
    if topic == kafka_publisher.MARKERS:
        # Only records that the broker has make a transaction there.
        _moments.wait(Moment.ROWS_SENT, producer.flush)
    _produce(producer, topic, records)


if __name__ == "__main__":
    kafka_publisher.Producer = _Producer  # type: ignore[attr-defined]
    kafka_publisher._produce = _waiting
    patience.LEAST_PATIENCE_SECONDS = 10.0
    main(DriverSettings(base_floor_bytes=8192))
