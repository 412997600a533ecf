"""Take a savepoint of every running job each hour, verify it, and drop old ones. Trigger it by hand for one job.

It drops nothing until the new savepoint is verified. It never drops the newest savepoint, one that is being read, or
one that a job will start from. Savepoints that people took stay.
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
    description="Take and verify savepoints of all running jobs, and drop old ones",
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
            24, type="integer", minimum=1, title="Keep", description="Maximum number of savepoints to keep of a job."
        ),
        "max_age_days": Param(
            7, type="number", exclusiveMinimum=0, title="Days", description="Maximum age of a savepoint."
        ),
    },
) as dag:

    @task_group
    def savepoint(job: str) -> None:
        """Handle one job; a failure does not affect the others."""
        taken = TakeSavepointOperator(task_id="take", job=job)
        verified = VerifySavepointOperator(task_id="verify", job=job, savepoint=taken.output)
        RetainSavepointsOperator(task_id="retain", job=job, verified=verified.output)

    jobs = RunningJobsOperator(task_id="jobs")
    savepoint.expand(job=jobs.output)
