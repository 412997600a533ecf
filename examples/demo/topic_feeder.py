"""Feeds the flights to a Kafka topic: JSON objects, with the aircraft as their key."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import Producer

from examples.demo.feeder import Fed
from stack.processes import StackError

_FLUSH_S = 120.0
_POLL_S = 0.1


class TopicFeeder:
    """Delivers tables of flights into a topic, those of an aircraft in order.

    Args:
        servers: ``host:port`` of the broker.
        topic: The topic; it has to exist by the first delivery.

    Attributes:
        history: The deliveries of this feeder.

    """

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic = servers, topic
        # Idempotent: what is sent again is there once, and in its place.
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self.history: list[Fed] = []

    @property
    def place(self) -> tuple[str, ...]:
        """Where flights go, for ``examples.demo.trickle``."""
        return self._servers, self._topic

    def feed(self, rows: pa.Table) -> None:
        """Deliver the rows, and return when the broker has all of them.

        Raises:
            StackError: The broker does not take them.

        """
        # Taken before the first is there, so no reader sees more rows than the history records.
        before = self.history[-1].rows_total if self.history else 0
        self.history.append(Fed(time.time_ns() // 1_000_000, before + rows.num_rows))
        refused: list[Any] = []
        for flight in rows.to_pylist():
            self._send(flight["tailnum"], msgspec.json.encode(flight), refused)
        left = self._producer.flush(_FLUSH_S)
        if left or refused:
            raise StackError(
                f"found {left + len(refused):,} of {rows.num_rows:,} flights not taken by topic {self._topic} at "
                f"{self._servers} ({refused[0] if refused else 'no answer'}); expected all; see the broker's log"
            )

    def _send(self, key: str | None, value: bytes, refused: list[Any]) -> None:
        def on_delivery(error: Any, _: object) -> None:
            if error is not None:
                refused.append(error)

        while True:
            try:
                return self._producer.produce(self._topic, value, key, on_delivery=on_delivery)
            except BufferError:
                self._producer.poll(_POLL_S)
