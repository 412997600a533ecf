"""A sink that publishes to a Kafka topic, each epoch in one transaction with a marker of the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaException

from statecore.arguments import require
from statecore.errors import JobDefinitionError, SinkError
from statecore.model import Field
from statecore.runtime.sinks.base import StagedEpoch, Threaded
from statecore.runtime.sinks.kafka_publisher import Publisher, Records, said
from statecore.storage import FileStore
from statecore.topics.client_settings import ClientSettings

_TEXT = ("string", "binary")


class KafkaSink(Threaded):
    """Publishes each epoch's rows as records of a Kafka topic, in one transaction.

    Consumers with ``isolation.level=read_committed`` see each row once. The transaction also writes a marker of the
    epoch to the topic ``statecore-published``, which the sink creates, compacted, if it is missing. A driver that takes
    over fences the one before it by the transactional id ``statecore/<job>/<sink>``, and then reads the marker.

    Rows of one key keep their order, as long as the topic keeps its number of partitions, if it is the key of the
    operator or follows from it. The partition of a key is the one that Kafka's own clients choose.

    Args:
        topic: The topic; it has to exist.
        servers: ``host:port`` of one or more brokers, with commas between.
        key: Column with the records' keys, a string or binary; None for records without.
        value: Column with their values, a string or binary, where null is a tombstone; None for a JSON object of all
            columns.
        headers: Columns that become headers of the same name, strings or binary; null leaves one out.

    ``STATECORE_KAFKA_CLIENT`` gives the client's settings, those of security among them; see ``docs/kafka.md``.

    Raises:
        JobDefinitionError: A name is empty, or the settings are unusable.

    """

    def __init__(
        self,
        topic: str,
        servers: str,
        *,
        key: str | None = None,
        value: str | None = None,
        headers: Sequence[str] = (),
    ) -> None:
        require("topic", topic, str, "the name of a topic")
        require("servers", servers, str, "host:port of a broker")
        if not topic or not servers or isinstance(headers, str):
            raise JobDefinitionError(
                f"found topic {topic!r}, servers {servers!r} and headers {headers!r}; expected the name of a topic, "
                "host:port of a broker, and a sequence of columns; correct the sink"
            )
        self.topic = topic
        self._client = ClientSettings.of(servers)
        self._key, self._value, self._headers = key, value, tuple(headers)
        self._publishers: dict[tuple[str, str], Publisher] = {}

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r}, {self._client.servers!r})"

    def staging(self, job_store: FileStore) -> FileStore:
        """Return the job's own store."""
        return job_store

    def publish(self, staged: StagedEpoch) -> None:
        """Publish an epoch's rows unless the topic has them; retry transient failures for 30 seconds.

        Raises:
            SinkError: The brokers cannot be reached or refuse the rows, a later epoch is published, or this one with
                other rows, or markers would expire.

        """
        name = (staged.job, staged.sink)
        publisher = self._publishers.setdefault(name, Publisher(self._client, self.topic, *name))
        try:
            publisher.publish(staged, lambda: self._records(staged))
        except KafkaException as error:
            raise SinkError(
                f"found that {self!r} does not take epoch {staged.epoch} of sink {staged.sink!r}: {said(error)}; "
                f"expected to publish rows of {staged.schema!r}; {_remedy(error)}, then restart the job: the epoch "
                "stays committed and is published then"
            ) from error

    def check_columns(self, fields: Sequence[Field]) -> None:
        """Check the columns that keys, values and headers come from.

        Raises:
            JobDefinitionError: One is missing, or neither a string nor binary.

        """
        known = {field.name: field.type.ddl() for field in fields}
        for role, name in (("key", self._key), ("value", self._value), *(("header", each) for each in self._headers)):
            if name is not None and known.get(name) not in _TEXT:
                raise JobDefinitionError(
                    f"found {known.get(name, 'no column')} for the {role} {name!r} of {self!r}; expected a column of "
                    f"type string or binary among {', '.join(known)}; have the job put one out, or name another column"
                )

    def _records(self, staged: StagedEpoch) -> Iterator[Records]:
        for batch in staged.batches():
            keys = [None] * len(batch) if self._key is None else batch.column(self._key).to_pylist()
            values = _objects(batch) if self._value is None else batch.column(self._value).to_pylist()
            yield Records(keys, values, self._headers_of(batch))

    def _headers_of(self, batch: pa.RecordBatch) -> list[list[tuple[str, Any]]] | None:
        if not self._headers:
            return None
        columns = [batch.column(name).to_pylist() for name in self._headers]
        return [
            [(name, value) for name, value in zip(self._headers, row, strict=True) if value is not None]
            for row in zip(*columns, strict=True)
        ]


def _objects(batch: pa.RecordBatch) -> list[bytes]:
    """Return the rows as JSON: binary in base64, decimals as strings, points in time as ISO 8601, NaN as null."""
    encode: Callable[[Any], bytes] = msgspec.json.encode
    try:
        return [encode(row) for row in batch.to_pylist(maps_as_pydicts="strict")]
    except (TypeError, ValueError, OverflowError) as error:
        raise SinkError(
            f"found a row that cannot be JSON: {error}; expected maps with keys that are text or numbers, and points "
            "in time of the years 1 to 9999; have the job put out the record's value, and name its column with value=; "
            "for the epoch that is committed already, use a FunctionSink of the same name"
        ) from error


def _remedy(error: KafkaException) -> str:
    name = error.args[0].name()
    if name == "MSG_SIZE_TOO_LARGE":
        return (
            "raise message.max.bytes in the client's settings, and max.message.bytes of the topic, or put out smaller "
            "rows"
        )
    if name == "INVALID_TRANSACTION_TIMEOUT":
        return "lower transaction.timeout.ms in the client's settings, or raise transaction.max.timeout.ms of brokers"
    if name in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"):
        return (
            "raise transaction.timeout.ms in the client's settings if an epoch takes longer than that, or stop the "
            "other driver or job of this name"
        )
    if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        return (
            "create the topic, with the partitions that its readers need, correct its name, or grant the client's user "
            "to describe and to write it"
        )
    if name == "_SSL":
        return "correct security.protocol and the certificates (ssl.…) in the client's settings"
    if name == "_AUTHENTICATION":
        return "correct user, password and mechanism (sasl.…) in the client's settings"
    if "AUTH" in name:
        return "grant the client's user to write to both topics and to its transactional id, or correct its credentials"
    return "check brokers, address and the client's settings"
