"""When the next epoch is due, and which jobs have ticks."""

from __future__ import annotations

import pytest

from benchmarks.jobs import running_sum_batch
from statecore.runtime.epoch.ticks import seconds_until_due
from tests.support.handmade import manifest
from tests.support.jobs import reminders, totals


@pytest.mark.parametrize(
    ("timers", "expected_s"),
    [
        ({}, None),
        ({"next_event_timer_ms": 5_000, "watermark_ms": 5_000}, 0),
        ({"next_event_timer_ms": 5_001, "watermark_ms": 5_000}, None),
        ({"next_event_timer_ms": 5_000}, None),
        ({"next_processing_timer_ms": 100_000}, 0),
        ({"next_processing_timer_ms": 99_000}, 0),
        ({"next_processing_timer_ms": 100_250}, 0.25),
        ({"next_processing_timer_ms": 2**63 - 1}, (2**63 - 1 - 100_000) / 1000),
        ({"next_event_timer_ms": 1, "watermark_ms": 5, "next_processing_timer_ms": 2**62}, 0),
    ],
)
def test_an_epoch_is_due_when_the_next_one_would_fire_a_timer(timers: dict[str, int], expected_s: float | None) -> None:
    assert seconds_until_due(manifest(batch_timestamp_ms=90_000, **timers), 100.0) == expected_s


@pytest.mark.parametrize(("due_ms", "expected_s"), [(129_000, 0), (130_000, 0), (130_001, 30.001)])
def test_a_clock_that_is_behind_delays_only_timers_after_the_time_of_their_epoch(
    due_ms: int, expected_s: float
) -> None:
    newest = manifest(batch_timestamp_ms=130_000, next_processing_timer_ms=due_ms)
    assert seconds_until_due(newest, 100.0) == expected_s


def test_only_a_job_whose_functions_act_on_timers_has_ticks() -> None:
    from statecore.runtime.job import load_job

    settings = {"input": "in", "output": "out"}
    assert load_job(reminders.__file__, settings).fires_timers
    assert not load_job(totals.__file__, settings).fires_timers
    assert not load_job(running_sum_batch.__file__, settings).fires_timers
