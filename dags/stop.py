"""Stop a job with a savepoint.

The driver lets the epoch in flight end, publishes what is committed, and ends. The task returns the path of the
savepoint. A failed stop is rolled back: the job keeps running.
"""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TriggerRule
from statecore_airflow.operators.lease import LeaseOperator
from statecore_airflow.operators.rescale import RollbackOperator, StopWithSavepointOperator
from statecore_airflow.params.form import job_param, reason_param

from statecore.operations.changes import RETRIES, RETRY_DELAY

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
    lease = LeaseOperator(task_id="lease", job=JOB)
    stop = StopWithSavepointOperator(
        task_id="stop_with_savepoint", job=JOB, reason="{{ params.reason }}", for_good=True
    )
    # `rollback` runs in any case; `done` decides whether the run succeeds.
    (
        lease
        >> stop
        >> [
            RollbackOperator(task_id="rollback", job=JOB).as_teardown(setups=lease, on_failure_fail_dagrun=True),
            EmptyOperator(task_id="done", trigger_rule=TriggerRule.NONE_FAILED),
        ]
    )
