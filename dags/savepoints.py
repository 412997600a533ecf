"""Take a savepoint of every running job each hour, verify it, and drop old ones; or of one job by hand.

The newest savepoint is never dropped, nor one that is being read or that a job is to start from. Nothing is dropped
until the new savepoint is verified. Savepoints that people took stay.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param, task_group
from statecore_airflow.operators.savepoints import (
    RetainSavepointsOperator,
    RunningJobsOperator,
    TakeSavepointOperator,
    VerifySavepointOperator,
)
from statecore_airflow.params.form import job_param

with DAG(
    dag_id="savepoints",
    description="Take, verify and retain savepoints of all jobs that run",
    doc_md=__doc__,
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["statecore"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "job": job_param(optional=True),
        "keep": Param(
            24, type="integer", minimum=1, title="Keep", description="How many savepoints of a job are kept at most."
        ),
        "max_age_days": Param(
            7, type="number", exclusiveMinimum=0, title="Days", description="How many days a savepoint is kept at most."
        ),
    },
) as dag:

    @task_group
    def savepoint(job: str) -> None:
        """Of one job, whatever becomes of the others."""
        taken = TakeSavepointOperator(task_id="take", job=job)
        verified = VerifySavepointOperator(task_id="verify", job=job, savepoint=taken.output)
        RetainSavepointsOperator(task_id="retain", job=job, verified=verified.output)

    jobs = RunningJobsOperator(task_id="jobs")
    savepoint.expand(job=jobs.output)
