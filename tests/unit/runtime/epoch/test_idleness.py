"""Sources without records do not hold back event time forever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statecore.errors import JobDefinitionError
from statecore.runtime import Job
from statecore.runtime.epoch.idleness import Idleness
from statecore.runtime.epoch.ticks import seconds_until_due
from statecore.runtime.job import Source
from tests.support.handmade import manifest


def read(spark: Any) -> Any:
    raise AssertionError("a job only describes")


SOURCES = [
    Source("quick", read, "at", idle_after=timedelta(seconds=1)),
    Source("slow", read, "at", idle_after=timedelta(seconds=9)),
    Source("never", read, "at"),
]


def test_a_source_is_idle_after_its_time_without_records_and_active_with_the_first() -> None:
    idleness = Idleness(SOURCES, 0)
    assert idleness.note({"quick": 5}, 500) == set()
    assert idleness.note({"never": 5}, 1_500) == set()
    assert idleness.note({}, 1_501) == {"quick"}
    assert idleness.note({"quick": 1}, 8_000) == set()
    assert idleness.note({}, 9_001) == {"quick", "slow"}


def test_the_time_before_the_driver_started_does_not_count() -> None:
    assert Idleness(SOURCES, 100_000).note({"slow": 1}, 100_400) == set()


def test_the_next_time_that_a_source_will_be_idle() -> None:
    idleness = Idleness(SOURCES, 0)
    assert idleness.next_ms(0) == 1_001
    idleness.note({}, 1_001)
    assert idleness.next_ms(1_001) == 9_001
    assert idleness.next_ms(9_001) is None


@pytest.mark.parametrize(
    ("timers", "wait_s"),
    [
        ({"next_event_timer_ms": 50_000, "watermark_ms": 10}, 2.0),
        ({"next_event_timer_ms": 50_000, "watermark_ms": 10, "next_processing_timer_ms": 1_001_000}, 1.0),
        ({"next_event_timer_ms": 10, "watermark_ms": 10}, 0.0),
        ({}, None),
    ],
    ids=["held back", "another timer is due first", "due", "no timer to hold back"],
)
def test_an_epoch_is_due_when_an_idle_source_may_hold_back_a_timer(
    timers: dict[str, int], wait_s: float | None
) -> None:
    assert seconds_until_due(manifest(batch_timestamp_ms=0, **timers), 1_000, 1_002_000) == wait_s


@pytest.mark.parametrize("wrong", [{"event_time": "at", "idle_after": timedelta(0)}, {"idle_after": timedelta(1)}])
def test_idleness_needs_event_time_and_a_time(wrong: dict[str, Any]) -> None:
    with pytest.raises(JobDefinitionError, match=r"idle_after=.* for source 'in'; expected a positive timedelta"):
        Job().source("in", read, **wrong)
