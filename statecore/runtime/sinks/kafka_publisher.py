"""Publishes epochs to a Kafka topic in transactions, and remembers the newest in a topic of markers.

::

    init_transactions      fences the publisher before; its transaction is then committed or aborted
    read the marker        has it committed the epoch?
    begin ─► rows ─► marker ─► commit

    statecore-published    key <job>/<sink>, value {"lineage", "epoch", "outputs"}; compacted

The order matters: once the one before is fenced, the marker cannot change any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    stop_all,
    wait_random_exponential,
)

from statecore.errors import SinkError
from statecore.runtime.sinks.base import StagedEpoch
from statecore.topics.client_settings import ClientSettings

log = logging.getLogger(__name__)

MARKERS = "statecore-published"

_Bytes = str | bytes | None


class Records(NamedTuple):
    """Records of a topic, column by column; ``headers`` is None where no record has any."""

    keys: Sequence[_Bytes]
    values: Sequence[_Bytes]
    headers: Sequence[list[tuple[str, _Bytes]]] | None = None


_RETRY_S = 30.0
_CALL_S = 15.0
# An open transaction of another sink holds up readers of the markers behind it; most are shorter.
_MARKERS_S = 90.0
# Kafka compacts a segment only once it is closed, and readers go through all that is not compacted.
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
_MESSAGES = 1_000
_COMMIT_S = 120.0
_QUEUE_KB = 64 * 1024
# Small records fill the queue by their number first, and while it is full, publishing waits. Each takes 200 bytes more.
_QUEUE_MESSAGES = 200_000
_ANY = -1
_REFUSED = ("_AUTHENTICATION", "_SSL")
# The user may not read a topic's settings, or the broker does not know a new topic yet.
_NOT_TOLD = ("CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART")
# Another attempt would end the same way.
_LASTING = {
    "CLUSTER_AUTHORIZATION_FAILED", "INVALID_CONFIG", "INVALID_RECORD", "INVALID_TRANSACTION_TIMEOUT",
    "MSG_SIZE_TOO_LARGE", "POLICY_VIOLATION", "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "_AUTHENTICATION", "_INVALID_ARG",
    "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC",
}  # fmt: skip


class _Marker(msgspec.Struct, frozen=True):
    lineage: int
    epoch: int
    outputs: str


def _place(marker: _Marker) -> tuple[int, int]:
    return marker.lineage, marker.epoch


class Publisher:
    """Publishes the epochs of one sink of a job.

    Args:
        client: How to reach the brokers.
        topic: The topic of the rows.
        job, sink: Names, which the transactional id and the marker's key consist of.

    """

    def __init__(self, client: ClientSettings, topic: str, job: str, sink: str) -> None:
        self._client = client
        self._topic = topic
        self._name = f"{job}/{sink}"
        self._producer: Producer | None = None
        self._newest: _Marker | None = None

    def publish(self, staged: StagedEpoch, records: Callable[[], Iterable[Records]]) -> None:
        """Publish an epoch unless it is published.

        Args:
            staged: The epoch.
            records: Returns its records, each time from the first.

        Raises:
            SinkError: A later epoch is published, or this one with other rows; or markers would expire.
            KafkaException: The brokers cannot be reached for 30 seconds, or refuse.

        """
        for attempt in Retrying(
            retry=retry_if_exception(_is_transient),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            # Once more in any case: a zombie may fence this driver after minutes.
            stop=stop_all(stop_after_delay(_RETRY_S), stop_after_attempt(2)),
            before_sleep=self._log_failure,
            reraise=True,
        ):
            with attempt:
                try:
                    self._publish(staged, records)
                except BaseException:
                    # Whether a transaction was committed is known only by the marker, once its publisher is fenced.
                    self._give_up()
                    raise

    def _publish(self, staged: StagedEpoch, records: Callable[[], Iterable[Records]]) -> None:
        if self._producer is None:
            self._producer = self._begun()
        if self._holds(staged):
            return
        producer, marker = self._producer, _Marker(staged.lineage, staged.epoch, staged.fingerprint)
        producer.begin_transaction()
        try:
            for some in records():
                _produce(producer, self._topic, some)
            # Last, so that readers of markers wait for the shortest time.
            _produce(producer, MARKERS, Records([self._name], [msgspec.json.encode(marker)]))
        except KafkaException as error:
            if error.args[0].code() == KafkaError._STATE:
                # A record failed, and only the commit, which fails, too, says why.
                producer.commit_transaction(_COMMIT_S)
            raise
        producer.commit_transaction(_COMMIT_S)
        self._newest = marker

    def _begun(self) -> Producer:
        """Fence the publisher before, and read what it has published."""
        refusals = list[KafkaError]()
        settings: dict[str, Any] = {**self._client.client(), "error_cb": refusals.append}
        admin = AdminClient(settings, logger=log)
        try:
            self._check_topics(admin)
        except KafkaException as error:
            # A refused client tries other brokers, and in the end reports only a timeout.
            admin.poll(0)
            raise next((KafkaException(each) for each in refusals if each.name() in _REFUSED), error) from None
        producer = Producer(
            self._client.client(
                transactional_id=f"statecore/{self._name}",
                partitioner="murmur2_random",
                queue_buffering_max_kbytes=_QUEUE_KB,
                queue_buffering_max_messages=_QUEUE_MESSAGES,
            ),
            logger=log,
        )
        producer.init_transactions(_CALL_S)
        self._newest = self._read_marker(admin)
        return producer

    def _check_topics(self, admin: AdminClient) -> None:
        topics = admin.list_topics(timeout=_CALL_S).topics
        if self._topic not in topics:
            # Brokers do not list topics that the user may not describe.
            seen = f"there is no topic {self._topic}, or none that the client's user may describe"
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC, seen))
        if MARKERS not in topics:
            made = NewTopic(MARKERS, 1, config=_COMPACTED)
            for created in admin.create_topics([made], request_timeout=_CALL_S).values():
                try:
                    created.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        else:
            self._check_compacted(admin)

    def _check_compacted(self, admin: AdminClient) -> None:
        """Check that markers do not expire, if the client's user may read the topic's settings.

        Raises:
            SinkError: They expire.
            KafkaException: The brokers do not answer.

        """
        (asked,) = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, MARKERS)], request_timeout=_CALL_S
        ).values()
        try:
            policy = asked.result()["cleanup.policy"].value
        except KafkaException as error:
            if error.args[0].name() not in _NOT_TOLD:
                raise
            log.info("whether %s is compacted is not known: %s", MARKERS, said(error))
            return
        if policy != "compact":
            raise SinkError(
                f"found the topic {MARKERS} with cleanup.policy={policy} at {self._client.servers}; expected compact: "
                "an epoch whose marker has expired could be published twice; alter the topic's cleanup.policy, then "
                "restart the job"
            )

    def _read_marker(self, admin: AdminClient) -> _Marker | None:
        """Return the newest marker of this sink.

        Raises:
            KafkaException: Transactions of other sinks stay open before it for too long.

        """
        topic = admin.list_topics(MARKERS, timeout=_CALL_S).topics[MARKERS]
        if topic.error is not None or not topic.partitions:
            # For example, a broker does not know it yet: without partitions, no marker would be read.
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"{MARKERS}: {topic.error}"))
        partitions = [TopicPartition(MARKERS, number, OFFSET_BEGINNING) for number in topic.partitions]
        # Also behind transactions of other sinks that are open: ours may be there, committed.
        ends = admin.list_offsets(
            {each: OffsetSpec.latest() for each in partitions},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_CALL_S,
        )
        end_offsets = {each.partition: end.result().offset for each, end in ends.items()}
        behind = {number: offset for number, offset in end_offsets.items() if offset > 0}
        consumer = Consumer(
            self._client.client(
                group_id=f"statecore/{self._name}",
                enable_auto_commit=False,
                isolation_level="read_committed",
                enable_partition_eof=True,
                # Else an offset that is out of range would lead to the end, past the marker.
                auto_offset_reset="error",
                # How long brokers hold an answer back at the end of a partition, which is where this one goes.
                fetch_wait_max_ms=50,
            ),
            logger=log,
        )
        try:
            consumer.assign(partitions)
            return self._newest_of(consumer, behind)
        finally:
            consumer.close()

    def _newest_of(self, consumer: Consumer, behind: dict[int, int]) -> _Marker | None:
        """Read until no partition is behind its offset; return the newest marker of this sink in any of them."""
        newest, key, deadline = None, self._name.encode(), time.monotonic() + _MARKERS_S
        while behind:
            for message in consumer.consume(_MESSAGES, 1.0):
                error, number, value = message.error(), message.partition(), message.value()
                if error is None:
                    if message.key() == key and value is not None:
                        marker = msgspec.json.decode(value, type=_Marker)
                        newest = marker if newest is None else max(newest, marker, key=_place)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if number is not None and (message.offset() or 0) >= behind.get(number, 0):
                        behind.pop(number, None)
                elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # The library requires a group; it stays unused.
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                why = f"a transaction of another sink is open in {MARKERS}; it ends after its transaction.timeout.ms"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, why))
        return newest

    def _holds(self, staged: StagedEpoch) -> bool:
        """Return whether the epoch is published already.

        Raises:
            SinkError: A later epoch is, or this one with other rows.

        """
        newest, asked = self._newest, (staged.lineage, staged.epoch)
        if newest is None or _place(newest) < asked:
            return False
        is_same = _place(newest) == asked
        if is_same and newest.outputs == staged.fingerprint:
            return True
        raise SinkError(
            f"found epoch {newest.epoch} of lineage {newest.lineage}{' with other rows' if is_same else ''} of "
            f"{self._name!r} already published, by the topic {MARKERS} at {self._client.servers}; expected epoch "
            f"{staged.epoch} of lineage {staged.lineage} to be the next; if another driver has taken over, let this "
            "one stop; if another run of a job of this name published there, choose another job name or brokers"
        )

    def _give_up(self) -> None:
        """Drop the producer. The next one ends its transaction anyway; abort it now to spare readers the wait."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.abort_transaction(1.0)
            except KafkaException as error:
                log.debug("the transaction is left to its timeout or the next publisher: %s", error)

    def _log_failure(self, state: RetryCallState) -> None:
        assert state.outcome is not None
        log.warning("%s at %s: %s; retrying", self._name, self._client.servers, said(state.outcome.exception()))


def said(error: BaseException | None) -> str:
    """Return a client's error message, on one line."""
    first = error.args[0] if isinstance(error, KafkaException) and error.args else error
    text = f"{first.name()}: {first.str()}" if isinstance(first, KafkaError) else str(error)
    return " ".join(text.split())


def _produce(producer: Producer, topic: str, records: Records) -> None:
    """Queue records; wait while the queue is full."""
    columns: list[Iterable[Any]] = [repeat(topic), records.values, records.keys]
    if records.headers is not None:
        # Behind partition, two callbacks and timestamp: an argument by name would cost more.
        columns += [repeat(_ANY), repeat(None), repeat(None), repeat(0), records.headers]
    produce = producer.produce
    for row in zip(*columns, strict=False):
        try:
            produce(*row)
        except BufferError:
            _produce_with_patience(producer, row)


def _produce_with_patience(producer: Producer, row: tuple[Any, ...]) -> None:
    while True:
        # Nothing ends it early; much longer, and the queue would run empty meanwhile.
        producer.poll(0.005)
        with suppress(BufferError):
            producer.produce(*row)
            return


def _is_transient(error: BaseException) -> bool:
    """Return whether another attempt may succeed: of two drivers that fence each other, the marker stops one."""
    return isinstance(error, KafkaException) and error.args[0].name() not in _LASTING
