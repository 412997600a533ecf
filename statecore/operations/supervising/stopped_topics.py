"""Measures the backlog in the topics of jobs while no driver runs: it grows during an outage."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from importlib.util import find_spec

from statecore.catalog import Catalog, SourceBacklog, SourceTopics, TopicsRecord
from statecore.errors import JobDefinitionError, SourceError
from statecore.topics import lag
from statecore.topics.client_settings import ClientSettings
from statecore.topics.gauge import Gauge
from statecore.topics.positions import Partition

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""That of a driver."""


class StoppedTopics:
    """Continues a driver's measurements; Kafka's clients use the supervisor's settings.

    Args:
        catalog: Holds the committed offsets, and records the measurements.

    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._gauges: dict[tuple[str, str, str, bool, bool], Gauge] = {}
        self._due_s: dict[str, float] = {}
        self._silent: set[str] = set()

    def measure(self, job: str) -> None:
        """Measure a job's topics, if no driver does and the interval has passed.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        now_s = time.monotonic()
        if now_s < self._due_s.get(job, 0.0) or find_spec("confluent_kafka") is None:
            return
        self._due_s[job] = now_s + INTERVAL_S
        topics, newest = self._catalog.epochs.topics(job), self._catalog.generations.newest(job)
        # A launching driver has not listed its topics yet.
        if (
            topics is None
            or newest is None
            or (self._catalog.generations.is_alive(newest) and newest.state == "running")
        ):
            self._forget(job)
            return
        try:
            self._measure(topics, newest.generation)
        except (SourceError, JobDefinitionError) as error:
            # The next one reads the settings again, which may have been corrected.
            self._forget(job)
            if job not in self._silent:
                log.warning("what waits for job %r is not known: %s", job, error)
            self._silent.add(job)
        else:
            self._silent.discard(job)

    def _forget(self, job: str) -> None:
        """Close the connections to a job's brokers."""
        for key in [key for key in self._gauges if key[0] == job]:
            del self._gauges[key]

    def _measure(self, topics: TopicsRecord, generation: int) -> None:
        measured = [self._measured(topics.job, source) for source in topics.sources]
        now_ms = self._catalog.now_ms()
        waiting = [SourceBacklog(each.name, **asdict(lag.waiting(each.partitions, now_ms))) for each in measured]
        self._catalog.epochs.record_topics(topics.job, topics.generation, measured)
        self._catalog.epochs.record_backlog(topics.job, generation, [*waiting, *self._others(topics)], by_driver=False)

    def _others(self, topics: TopicsRecord) -> list[SourceBacklog]:
        """Return the last known backlog of the job's other sources."""
        before = self._catalog.overviews.figures(topics.job).backlog
        measured = {each.name for each in topics.sources}
        return [each for each in (before.sources if before is not None else ()) if each.name not in measured]

    def _measured(self, job: str, source: SourceTopics) -> SourceTopics:
        positions = {Partition(each.topic, each.partition): each.position for each in source.partitions}
        gauge = self._gauge(job, source)
        return replace(source, partitions=gauge.measure(positions))

    def _gauge(self, job: str, source: SourceTopics) -> Gauge:
        # Here, because the package that it needs is optional.
        from statecore.topics.brokers import Brokers

        key = (job, source.name, source.servers, source.committed, source.assigned)
        if key not in self._gauges:
            brokers = Brokers(ClientSettings.of(source.servers), committed=source.committed)
            self._gauges[key] = Gauge(brokers, assigned=source.assigned)
        return self._gauges[key]
