"""The policy in a loop with a simulated job: the outage story, and loads that must not cause many rescales."""

from __future__ import annotations

import math
import random

import pytest

from statecore.policy import PolicySettings
from tests.unit.policy.simulated import SimulatedJob

# Simulated days: measuring coverage would take twice as long.
pytestmark = pytest.mark.untraced

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SETTINGS = PolicySettings(min_parallelism=2, max_parallelism=16, catch_up_s=900.0)


def test_after_an_outage_the_job_grows_once_drains_in_time_and_goes_back() -> None:
    # Parallelism 2 has a throughput of 9,000 rows/s; 3,000 arrive. Storage is down for three hours.
    def arriving(now_ms: int) -> float:
        if began_ms <= now_ms < returned_ms:
            return 0.0
        return 3_000.0 * 3 * 3600 * 4 if now_ms == returned_ms else 3_000.0

    began_ms, returned_ms = 20 * MINUTE_MS, 200 * MINUTE_MS
    job = SimulatedJob(arriving, SETTINGS)
    job.run(5 * HOUR_MS)
    assert [made.action for _, made in job.decisions] == ["out", "in"], job.decisions
    (out_ms, out), (in_ms, back) = job.decisions
    assert out_ms - returned_ms <= 2 * MINUTE_MS
    assert out.parallelism < 16 and back.parallelism == 2
    drained_ms = next(at_ms for at_ms, waiting in job.backlog if at_ms > out_ms and waiting < 20_000)
    assert drained_ms - out_ms <= 950_000
    assert in_ms - drained_ms >= 550_000
    assert "32,2" in out.reason and "rows wait" in out.reason and "rows/s arrive" in out.reason


@pytest.mark.parametrize("trigger_ms", [0, 1_000, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_steady_load_with_noise_is_left_alone(seed: int, trigger_ms: int) -> None:
    noise = random.Random(seed)
    job = SimulatedJob(
        lambda _: 4_000 * noise.uniform(0.7, 1.3), SETTINGS, noise=0.25, seed=seed, trigger_ms=trigger_ms
    )
    job.run(HOUR_MS)
    assert job.decisions == []


@pytest.mark.parametrize("load", [8_000, 20_000, 45_000])
@pytest.mark.parametrize("begins_with", [2, 16])
def test_it_converges_to_a_size_that_keeps_up_and_stays_there(begins_with: int, load: float) -> None:
    noise = random.Random(1)
    job = SimulatedJob(lambda _: load * noise.uniform(0.8, 1.2), SETTINGS, parallelism=begins_with, noise=0.15)
    job.run(90 * MINUTE_MS)
    assert len(job.decisions) <= 4, job.decisions
    assert all(at_ms < HOUR_MS for at_ms, _ in job.decisions)
    # A row costs 0.2 ms of one subtask, and an epoch of a job under load a fifth more.
    needed = load / 0.7 / 4_000
    assert min(needed * 0.9, 16) <= job.parallelism <= max(2, needed * 3)
    assert job.waiting < load * 30 or job.parallelism == 16


def test_a_day_with_a_peak_takes_few_rescales() -> None:
    # From 2,000 rows/s at night to 30,000 at noon, in six hours.
    job = SimulatedJob(
        lambda now_ms: 16_000 - 14_000 * math.cos(2 * math.pi * now_ms / (6 * HOUR_MS)),
        SETTINGS,
        trigger_ms=10_000,
        epoch_limit=500_000,
    )
    job.run(6 * HOUR_MS)
    actions = [made.action for _, made in job.decisions]
    assert 2 <= len(actions) <= 24, job.decisions
    # Out in the morning and in at night, without reversals in between.
    assert actions == sorted(actions, reverse=True)
    assert max(waiting for _, waiting in job.backlog) < 30_000 * 120


def test_where_more_subtasks_do_not_help_they_are_not_asked_for_again_and_again() -> None:
    job = SimulatedJob(lambda _: 11_000.0, SETTINGS, scaling=0.02, epoch_limit=20_000)
    job.run(HOUR_MS)
    assert len(job.decisions) <= 1, job.decisions
