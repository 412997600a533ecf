"""Stop a job with a savepoint.

The driver lets the epoch in flight end, publishes what is committed, and ends. The task returns the path of the
savepoint. A failed stop is rolled back: the job keeps running.
"""

from __future__ import annotations

from airflow.sdk import DAG
from statecore_airflow.operators.rollback import rollback_or_done
from statecore_airflow.operators.step import StepOperator
from statecore_airflow.params.form import job_param, reason_param

from statecore.operations.changes import RETRIES, RETRY_DELAY, StopWithSavepoint, TakeLease

JOB = "{{ params.job }}"

with DAG(
    dag_id="stop",
    description="Stop a job with a savepoint",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    tags=["statecore"],
    default_args={"retries": RETRIES, "retry_delay": RETRY_DELAY},
    params={"job": job_param(), "reason": reason_param()},
) as dag:
    lease = StepOperator(step=TakeLease, job=JOB)
    stop = StepOperator(step=StopWithSavepoint, job=JOB, arguments={"for_good": True})
    lease >> stop >> rollback_or_done(lease)
