"""The plan of a rescale, and what it refuses; a dry run as a whole is in test_rescale_dag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from statecore_airflow.operators.plan import PlanOperator

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore
from tests.airflow.running import RUN, run_step


def plan(job: str, **changes: Any) -> dict[str, Any]:
    params = {"job": job, "parallelism": 4, "workers": 2, **changes}
    found: dict[str, Any] = run_step(PlanOperator(task_id="plan", job=job), **params)
    return found


def test_a_plan_shows_each_new_subtask_and_changes_nothing(catalog: Catalog, job: str, store: CheckpointStore) -> None:
    before = catalog.jobs.get(job)
    found = plan(job, reason="backlog")
    assert [(each["subtask"], each["key_groups"], each["rows"]) for each in found["plan"]["subtasks"]] == [
        (0, (0, 3), 6), (1, (4, 7), 6), (2, (8, 11), 5), (3, (12, 15), 5),
    ]  # fmt: skip
    assert (found["rows"], found["skew"], found["downtime_ms"]) == (22, pytest.approx(6 * 4 / 22), None)
    for said in (
        "method by_reference: parallelism 2 to 4, workers 1 to 2.",
        "Reason: backlog.",
        "Expected downtime: unknown, because this job was not rescaled by the method by_reference before.",
        "epoch 7 of lineage 1: 22 rows, ",
        " 0 bytes to write; skew 1.09",
        "Operator totals: 22 rows, ",
        "| 0 | 0..3 | ",
    ):
        assert said in found["text"]
    assert catalog.jobs.get(job) == before
    assert catalog.leases.find(job) is None and catalog.runs.of(job) == [] and store.claimed() == set()


def test_the_expected_downtime_is_what_earlier_runs_took(catalog: Catalog, job: str) -> None:
    catalog.runs.start("r", job, from_parallelism=2, to_parallelism=4)
    for step in ("stop_with_savepoint", "restart"):
        catalog.runs.mark_step("r", step, started=True, ended=True)
    catalog.runs.finish("r")
    assert plan(job)["downtime_ms"] >= 0
    assert "in 1 earlier run)" in plan(job)["text"]


def test_a_rewrite_says_how_much_it_will_write(catalog: Catalog, job: str) -> None:
    text = plan(job, method="rewrite", max_parallelism=32)["text"]
    assert "max parallelism 16 to 32" in text and " 0 bytes to write" not in text


def test_a_run_that_is_cleared_after_it_has_stopped_the_job_plans_again(catalog: Catalog, job: str) -> None:
    catalog.leases.acquire(job, RUN, 60_000)
    catalog.runs.start(RUN, job, from_parallelism=2, to_parallelism=4)
    catalog.jobs.set_desired(job, state="stopped")
    assert plan(job)["rows"] == 22


def test_what_cannot_be_done_is_refused_with_a_reason(catalog: Catalog, job: str, store: CheckpointStore) -> None:
    for changes, message in (({"parallelism": 17}, "1 to its max"), ({"method": "live"}, "no live driver")):
        with pytest.raises(AirflowFailException, match=message):
            plan(job, **changes)
    catalog.jobs.register(
        "plain", artifact="x", store=store.files.url, master_url="local", parallelism=2, max_parallelism=16
    )
    catalog.jobs.set_desired("plain", state="running")
    with pytest.raises(AirflowFailException, match="found 2 workers asked for job 'plain', which names no cluster"):
        plan("plain", workers=2)
    catalog.leases.acquire(job, "manual__first", 60_000)
    # Whatever the other one has done to the job so far.
    for state in ("running", "stopped"):
        catalog.jobs.set_desired(job, state=state)
        with pytest.raises(AirflowFailException, match="found run 'manual__first' changing job 'flights'"):
            plan(job)
    catalog.jobs.set_desired(job, state="running")
    catalog.leases.release(job, "manual__first")
    manifest = store.newest()
    assert manifest is not None
    lost = Path(store.files.url) / manifest.files()[0].path
    lost.unlink()
    with pytest.raises(AirflowFailException, match=str(lost)):
        plan(job)
