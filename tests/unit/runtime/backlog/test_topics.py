"""The meter of a Kafka source: the brokers' answers, else what the query reports."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from statecore.catalog import SourceTopics
from statecore.runtime.backlog.meters import ProgressMeter
from statecore.runtime.backlog.topics import TopicMeter, TopicSource, source_topics, topic_meter
from statecore.topics.gauge import Gauge
from statecore.topics.lag import PartitionLag
from tests.support.brokers import ScriptedBrokers

SOURCE = TopicSource("broker:9092", committed=True, fails_on_loss=True, assigned=False)


class Topics:
    """A topic of two partitions, and its meter."""

    def __init__(self) -> None:
        self.brokers = ScriptedBrokers({("t", 0): (0, 20), ("t", 1): (0, 10)})
        self.progress: dict[str, Any] | None = None
        self.meter = TopicMeter(
            SOURCE, Gauge(cast(Any, self.brokers), assigned=False), ProgressMeter(lambda: self.progress)
        )

    def committed(self, first: int, second: int) -> None:
        self.meter.committed(json.dumps({"t": {"0": first, "1": second}}))


@pytest.fixture
def topics() -> Topics:
    return Topics()


def test_what_waits_is_what_brokers_say_behind_the_newest_commit(topics: Topics) -> None:
    topics.committed(5, 10)
    topics.meter.measure()
    found = topics.meter.pending()
    assert (found.records, found.partitions, found.skew) == (15, 2, 2)
    assert found.oldest_age_ms is not None
    topics.committed(18, 10)
    assert topics.meter.pending().records == 2
    topics.committed(25, 10)
    assert (topics.meter.pending().records, topics.meter.pending().oldest_age_ms) == (0, 0)
    assert source_topics({"in": topics.meter}) == [
        SourceTopics("in", "broker:9092", True, (PartitionLag("t", 0, 25, 0, 25, 5), PartitionLag("t", 1, 10, 0, 10)))
    ]


def test_brokers_that_do_not_answer_leave_what_the_query_reports(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topics.committed(5, 10)
    topics.meter.measure()
    topics.brokers.is_away = True
    topics.progress = {"metrics": {"maxOffsetsBehindLatest": "3"}, "latestOffset": {"t": {"0": 8, "1": 10}}}
    for _ in range(2):
        topics.meter.measure()
    assert topics.meter.pending().records == 3
    assert len(caplog.records) == 1 and "found no answer" in caplog.text
    # The offsets are for the supervisor; what waits is unknown, not 0.
    (found,) = source_topics({"in": topics.meter})
    assert [(each.position, each.records) for each in found.partitions] == [(5, None), (10, None)]
    topics.brokers.is_away = False
    topics.meter.measure()
    assert topics.meter.pending().records == 15


def test_before_the_first_commit_nothing_is_known_and_before_the_first_answer_only_the_offsets(topics: Topics) -> None:
    topics.meter.measure()
    assert topics.meter.pending().records is None and source_topics({"in": topics.meter}) == []
    topics.committed(5, 10)
    (found,) = source_topics({"in": topics.meter})
    assert [(each.position, each.records) for each in found.partitions] == [(5, None), (10, None)]


def test_without_the_client_the_query_alone_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statecore.runtime.backlog.topics.find_spec", lambda _: None)
    reported = ProgressMeter(lambda: None)
    assert topic_meter(SOURCE, reported) is reported
    assert source_topics({"in": reported}) == []
