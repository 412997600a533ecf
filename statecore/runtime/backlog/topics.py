"""Meters a Kafka source by asking its brokers, independently of the query."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from statecore.catalog import SourceTopics
from statecore.errors import SourceError
from statecore.runtime.backlog.meters import Pending, ProgressMeter, SourceMeter, unreadable
from statecore.topics import lag
from statecore.topics.client_settings import ClientSettings
from statecore.topics.gauge import Gauge
from statecore.topics.lag import PartitionLag
from statecore.topics.positions import Partition, read_position

if TYPE_CHECKING:
    from statecore.topics.brokers import Brokers

log = logging.getLogger(__name__)


class TopicSource(NamedTuple):
    """Options of a Kafka source.

    Attributes:
        servers: Its brokers.
        committed: Whether it reads only records of committed transactions.
        fails_on_loss: The connector's ``failOnDataLoss``: whether lost records end the query.
        assigned: Whether it reads only the partitions that its option ``assign`` names.

    """

    servers: str
    committed: bool
    fails_on_loss: bool
    assigned: bool

    def brokers(self) -> Brokers | None:
        """Return the brokers; None without the optional package for Kafka.

        Raises:
            JobDefinitionError: The file of client settings cannot be read.

        """
        if find_spec("confluent_kafka") is None:
            return None
        # Here, because the package is optional.
        from statecore.topics.brokers import Brokers

        return Brokers(ClientSettings.of(self.servers), committed=self.committed)


def topic_source(leaf: Any) -> TopicSource | None:
    """Return the options of a Kafka source in a plan; None for a source of another kind."""
    if leaf.getClass().getSimpleName() != "StreamingRelationV2" or leaf.sourceName() != "kafka":
        return None
    options = leaf.extraOptions()
    return TopicSource(
        servers=options.get("kafka.bootstrap.servers"),
        committed=options.get("kafka.isolation.level") == "read_committed",
        fails_on_loss=options.getBoolean("failOnDataLoss", True),
        assigned=options.containsKey("assign"),
    )


class TopicMeter:
    """Meters a Kafka source by its brokers; while these do not answer, by the query's progress.

    Attributes:
        source: The source's options.

    Args:
        gauge: Asks the brokers.
        reported: Meters the source by the query's progress.

    """

    def __init__(self, source: TopicSource, gauge: Gauge, reported: ProgressMeter) -> None:
        self.source = source
        self._gauge = gauge
        self._reported = reported
        self._position: dict[Partition, int] = {}
        self._lags: tuple[PartitionLag, ...] = ()
        self._problem: str | None = None

    def measure(self) -> None:
        """Ask the brokers, once a position is known."""
        self._reported.measure()
        try:
            if self._position:
                self._lags = self._gauge.measure(self._position)
        except SourceError as error:
            if self._problem is None:
                log.warning("the backlog is that of the last epoch: %s", error)
            self._problem, self._lags = unreadable(error), ()
        else:
            self._problem = None

    def committed(self, position: str) -> None:
        """Note the committed offsets."""
        self._reported.committed(position)
        self._position = read_position(position)

    def partitions(self) -> Sequence[PartitionLag]:
        """Return each partition's lag behind the newest committed offsets, by the brokers' last answer.

        Without an answer, only the offset is known.
        """
        by_partition = {each: PartitionLag(*each, at) for each, at in self._position.items()}
        if self._problem is None:
            by_partition |= {Partition(each.topic, each.partition): self._read_on(each) for each in self._lags}
        return list(by_partition.values())

    def pending(self) -> Pending:
        """Return the pending input of all partitions."""
        if not self._lags:
            return replace(self._reported.pending(), problem=self._problem)
        return Pending(**asdict(lag.waiting(self.partitions(), int(time.time() * 1000))))

    def _read_on(self, answered: PartitionLag) -> PartitionLag:
        position = self._position.get(Partition(answered.topic, answered.partition), answered.position)
        if position <= answered.position:
            return answered
        # The time of the next record is unknown; it is no older.
        return replace(answered, position=position, end=None if answered.end is None else max(position, answered.end))


def topic_meter(source: TopicSource, reported: ProgressMeter) -> TopicMeter | ProgressMeter:
    """Return a meter of a Kafka source."""
    brokers = source.brokers()
    if brokers is None:
        log.info("the backlog in Kafka is known after each epoch only; install 'statecore[kafka]' to ask the brokers")
        return reported
    return TopicMeter(source, Gauge(brokers, assigned=source.assigned), reported)


def source_topics(meters: Mapping[str, SourceMeter]) -> list[SourceTopics]:
    """Return the partitions' lag of the sources that read Kafka."""
    topic_meters = [
        (name, meter) for name, meter in meters.items() if isinstance(meter, TopicMeter) and meter.partitions()
    ]
    return [
        SourceTopics(
            name, meter.source.servers, meter.source.committed, tuple(meter.partitions()), meter.source.assigned
        )
        for name, meter in topic_meters
    ]
