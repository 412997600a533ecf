"""What waits in topics is measured while no driver runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from statecore.catalog import Catalog, SourceBacklog, SourceTopics
from statecore.operations.supervising import stopped_topics
from statecore.operations.supervising.stopped_topics import StoppedTopics
from statecore.topics.lag import PartitionLag
from tests.contracts.catalog.fixtures import register
from tests.support.brokers import ScriptedBrokers


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ScriptedBrokers:
    made = ScriptedBrokers({("t", 0): (0, 20), ("t", 1): (0, 10)})
    monkeypatch.setattr("statecore.topics.brokers.Brokers", lambda *_, **__: made)
    monkeypatch.setattr(stopped_topics, "INTERVAL_S", 0.0)
    return made


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    with Catalog(catalog_url) as catalog:
        register(catalog, "flights")
        yield catalog


@pytest.fixture
def job(catalog: Catalog) -> str:
    """A job whose driver runs and has committed offsets."""
    catalog.jobs.set_desired("flights", state="running")
    catalog.generations.claim("flights", log_path="")
    catalog.generations.heartbeat("flights", 1)
    position = (PartitionLag("t", 0, 5, 0, 5), PartitionLag("t", 1, 9, 0, 9))
    catalog.epochs.record_topics("flights", 1, [SourceTopics("in", "broker:9092", False, position)])
    return "flights"


def waiting(catalog: Catalog, job: str) -> Any:
    found = catalog.overviews.figures(job).backlog
    return None if found is None else (found.generation, [(each.name, each.records) for each in found.sources])


def test_it_goes_on_where_a_driver_has_ended_and_leaves_a_running_one_alone(
    catalog: Catalog, job: str, brokers: ScriptedBrokers
) -> None:
    topics = StoppedTopics(catalog)
    topics.measure(job)
    assert waiting(catalog, job) is None
    catalog.generations.end(job, 1, state="failed", error="killed")
    topics.measure(job)
    assert waiting(catalog, job) == (1, [("in", 16)])
    brokers.spans |= dict.fromkeys(brokers.spans, (0, 40))
    catalog.generations.claim(job, log_path="")
    topics.measure(job)
    assert waiting(catalog, job) == (2, [("in", 66)])
    catalog.generations.heartbeat(job, 2)
    brokers.spans |= dict.fromkeys(brokers.spans, (0, 80))
    topics.measure(job)
    assert waiting(catalog, job) == (2, [("in", 66)])


def test_what_waits_in_other_sources_is_what_was_last_known(
    catalog: Catalog, job: str, brokers: ScriptedBrokers
) -> None:
    catalog.epochs.record_backlog(job, 1, [SourceBacklog("files", files=3), SourceBacklog("in", records=1)])
    catalog.generations.end(job, 1, state="failed", error="killed")
    StoppedTopics(catalog).measure(job)
    found = catalog.overviews.figures(job).backlog
    assert found is not None
    assert [(each.name, each.records, each.files) for each in found.sources] == [("in", 16, None), ("files", None, 3)]


def test_brokers_that_do_not_answer_are_told_of_once(
    catalog: Catalog, job: str, brokers: ScriptedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    topics = StoppedTopics(catalog)
    catalog.generations.end(job, 1, state="failed", error="killed")
    brokers.is_away = True
    for _ in range(3):
        topics.measure(job)
    assert waiting(catalog, job) is None and len(caplog.records) == 1
    brokers.is_away = False
    topics.measure(job)
    assert waiting(catalog, job) is not None


def test_a_driver_that_was_taken_for_dead_does_not_take_offsets_back(catalog: Catalog, job: str) -> None:
    newer = SourceTopics("in", "broker:9092", False, (PartitionLag("t", 0, 9, 0, 9),))
    older = SourceTopics("in", "broker:9092", False, (PartitionLag("t", 0, 6, 0, 6),))
    catalog.epochs.record_topics(job, 2, [newer])
    catalog.epochs.record_topics(job, 1, [older])
    found = catalog.epochs.topics(job)
    assert found is not None and (found.generation, found.sources) == (2, (newer,))
