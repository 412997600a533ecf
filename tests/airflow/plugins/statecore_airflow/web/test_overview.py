"""The condition of a job in the list of jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from statecore_airflow.web.answers import Condition
from statecore_airflow.web.overview import summaries

from statecore.catalog import Catalog


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
