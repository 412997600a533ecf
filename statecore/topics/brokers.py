"""Asks Kafka brokers which topics exist, for their first and last offsets, and for the time of a record.

It needs ``confluent-kafka``, and neither Spark nor a driver.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from statecore.errors import SourceError
from statecore.topics.client_settings import ClientSettings
from statecore.topics.positions import Partition

_ANSWER_S = 5.0
# Brokers that are down are reported once, by an error, not at each attempt of the library.
_QUIET = {"log_level": 0}
_FETCH_S = 5.0
# The last two: settings that no client accepts, for example of an Airflow connection.
_REFUSED = (KafkaException, TypeError, ValueError)
_GONE = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}


class Topic(NamedTuple):
    """A topic as it is now.

    Attributes:
        id: Distinguishes it from an earlier topic of its name.
        partitions: Its partitions.

    """

    id: str
    partitions: frozenset[Partition]


class Brokers:
    """The brokers of one Kafka cluster.

    Args:
        client: How to reach them.
        committed: Whether only records of committed transactions count (``read_committed``).

    """

    def __init__(self, client: ClientSettings, *, committed: bool) -> None:
        self.servers = client.servers
        self._client = client
        self._isolation = "read_committed" if committed else "read_uncommitted"
        # Its answers arrive only while it lives.
        self._admin: AdminClient | None = None

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return those of these topics that exist.

        Raises:
            SourceError: The brokers do not answer, or refuse.

        """
        if not names:
            return {}
        asked = self._asked(
            lambda admin: admin.describe_topics(TopicCollection(list(names)), request_timeout=_ANSWER_S)
        )
        return {
            name: Topic(str(each.topic_id), frozenset(Partition(name, part.id) for part in each.partitions))
            for name, each in self._answers(asked)
        }

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the offset of each partition's first record, which may be yet to come; omit missing partitions.

        Raises:
            SourceError: The brokers do not answer, or refuse.

        """
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Iterable[Partition], *, is_all: bool = False) -> dict[Partition, int]:
        """Return the offset behind the newest record of each partition; omit missing partitions.

        Args:
            partitions: The partitions.
            is_all: Whether to count records of open transactions, whatever is read.

        Raises:
            SourceError: The brokers do not answer, or refuse.

        """
        return self._offsets(partitions, OffsetSpec.latest(), is_all=is_all)  # type: ignore[no-untyped-call]

    def times_ms(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the time of the first record at or behind each offset, for those that answer within 5 seconds.

        Raises:
            SourceError: The brokers refuse.

        """
        if not positions:
            return {}
        try:
            consumer = self._consumer()
            try:
                consumer.assign([TopicPartition(*partition, offset) for partition, offset in positions.items()])
                return self._first_of(consumer, set(positions))
            finally:
                consumer.close()
        except _REFUSED as error:
            raise self._unanswered(error) from error

    def _consumer(self) -> Consumer:
        return Consumer(
            self._client.client(
                # The library requires a group; it stays unused.
                group_id="statecore",
                enable_auto_commit=False,
                isolation_level=self._isolation,
                auto_offset_reset="earliest",
                # Only one record of each partition is needed, so fetch as few as possible.
                max_partition_fetch_bytes=1024,
                queued_min_messages=1,
                fetch_wait_max_ms=50,
            )
            | _QUIET
        )

    @staticmethod
    def _first_of(consumer: Consumer, wanted: set[Partition]) -> dict[Partition, int]:
        times_ms: dict[Partition, int] = {}
        deadline = time.monotonic() + _FETCH_S
        while wanted and time.monotonic() < deadline:
            for message in consumer.consume(len(wanted), 0.2):
                topic, number, error = message.topic(), message.partition(), message.error()
                if error is not None:
                    if error.name() not in _GONE and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                        raise KafkaException(error)
                    continue
                assert topic is not None and number is not None
                partition = Partition(topic, number)
                if partition in wanted:
                    wanted.discard(partition)
                    consumer.pause([TopicPartition(*partition)])
                    kind, at_ms = message.timestamp()
                    if kind != TIMESTAMP_NOT_AVAILABLE:
                        times_ms[partition] = at_ms
        return times_ms

    def _offsets(
        self, partitions: Iterable[Partition], which: OffsetSpec, *, is_all: bool = False
    ) -> dict[Partition, int]:
        wanted = {TopicPartition(*each): which for each in partitions}
        if not wanted:
            return {}
        isolation = getattr(IsolationLevel, "READ_UNCOMMITTED" if is_all else self._isolation.upper())
        asked = self._asked(
            lambda admin: admin.list_offsets(wanted, isolation_level=isolation, request_timeout=_ANSWER_S)
        )
        return {Partition(each.topic, each.partition): answer.offset for each, answer in self._answers(asked)}

    def _asked(self, ask: Any) -> Mapping[Any, Future[Any]]:
        try:
            if self._admin is None:
                self._admin = AdminClient(self._client.client() | _QUIET)
            answers: Mapping[Any, Future[Any]] = ask(self._admin)
        except _REFUSED as error:
            raise self._unanswered(error) from error
        return answers

    def _answers(self, answers: Mapping[Any, Future[Any]]) -> Iterable[tuple[Any, Any]]:
        for asked, answer in answers.items():
            try:
                yield asked, answer.result(2 * _ANSWER_S)
            except KafkaException as error:
                if error.args[0].name() not in _GONE:
                    raise self._unanswered(error) from error
            except TimeoutError as error:
                raise self._unanswered(error) from error

    def _unanswered(self, error: BaseException) -> SourceError:
        told = error.args[0].str() if isinstance(error, KafkaException) else type(error).__name__
        return SourceError(
            f"found no answer about topics from the Kafka brokers {self.servers}: {told}; expected one within "
            f"{_ANSWER_S:g} s; check the brokers, and the client settings that STATECORE_KAFKA_CLIENT names"
        )
