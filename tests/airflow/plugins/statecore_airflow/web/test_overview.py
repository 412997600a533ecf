"""The condition of a job in the list of jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from statecore_airflow.web.answers import Condition
from statecore_airflow.web.overview import summaries

from statecore.catalog import Catalog, EpochRecord
from statecore.operations.status.finding import Alert


@pytest.mark.parametrize(
    ("failures", "expected"), [(0, Condition.STARTING), (1, Condition.STARTING), (2, Condition.FAILED)]
)
def test_a_job_in_a_crash_loop_is_failed_also_while_its_next_driver_starts(
    tmp_path: Path, failures: int, expected: Condition
) -> None:
    with Catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.create_schema()
        catalog.jobs.register("j", artifact="/a", store="/s", master_url="m", parallelism=1, max_parallelism=1)
        catalog.jobs.set_desired("j", state="running")
        for _ in range(failures):
            failed = catalog.generations.claim("j", log_path="/l")
            catalog.generations.end("j", failed.generation, state="failed", error="found one; expected none; remove it")
        catalog.generations.claim("j", log_path="/l")
        assert [job.condition for job in summaries(catalog)] == [expected]


def test_the_worst_finding_gives_order_and_colour_and_is_new_until_it_was_sent(tmp_path: Path) -> None:
    with Catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.create_schema()
        for name in ("calm", "full", "loop"):
            catalog.jobs.register(name, artifact="/a", store="/s", master_url="m", parallelism=1, max_parallelism=1)
            catalog.jobs.set_desired(name, state="running")
            catalog.generations.claim(name, log_path="/l")
            catalog.generations.heartbeat(name, 1)
            now_ms = catalog.now_ms()
            share = 0.9 if name == "full" else 0.1
            catalog.epochs.record(EpochRecord(name, 1, 1, 1, 1, 5, 5, now_ms, now_ms, 9, memory_share=share))
        for number in (1, 2):
            catalog.generations.end("loop", number, state="failed", error="ValueError: negative")
            catalog.generations.claim("loop", log_path="/l")
        catalog.generations.heartbeat("loop", 3)
        found = summaries(catalog)
        assert [(job.name, job.severity) for job in found] == [
            ("loop", "critical"), ("full", "warning"), ("calm", None),
        ]  # fmt: skip
        (first, *_) = found[0].findings
        assert (first.alert, first.severity, first.is_new) == (Alert.CRASH_LOOP, "critical", True)
        for channel in ("supervisor", "airflow"):
            catalog.alerts.claim(channel, "loop", Alert.CRASH_LOOP, firing=True, ttl_ms=1_000)
            catalog.alerts.confirm(channel, "loop", Alert.CRASH_LOOP, firing=True)
            assert not summaries(catalog)[0].findings[0].is_new
            catalog.alerts.claim(channel, "loop", Alert.CRASH_LOOP, firing=False, ttl_ms=1_000)
            catalog.alerts.confirm(channel, "loop", Alert.CRASH_LOOP, firing=False)
        assert [job.name for job in summaries(catalog, lambda name: name != "loop")] == ["full", "calm"]
