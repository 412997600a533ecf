"""Move a job to a new job file, through a savepoint.

The supervisor checks the new file before the job is stopped. If the job does not become healthy with it, the upgrade
is rolled back: the job resumes with its old file, from its newest committed epoch.
"""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, TriggerRule, chain
from statecore_airflow.operators.lease import BeginUpgradeOperator
from statecore_airflow.operators.rescale import (
    ReplaceArtifactOperator,
    RestartOperator,
    RollbackOperator,
    StopWithSavepointOperator,
    VerifyOperator,
)
from statecore_airflow.params.form import job_param, reason_param

from statecore.operations.changes import RETRIES, RETRY_DELAY

JOB = "{{ params.job }}"

with DAG(
    dag_id="upgrade",
    description="Move a job to a new job file, through a savepoint",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    tags=["statecore"],
    default_args={"retries": RETRIES, "retry_delay": RETRY_DELAY},
    params={
        "job": job_param(),
        "artifact": Param(
            type="string",
            minLength=1,
            title="Job file",
            description="The new job file, an absolute path or a URL in one of the supervisor's folders of job files.",
        ),
        "reason": reason_param(),
    },
) as dag:
    lease = BeginUpgradeOperator(task_id="lease", job=JOB)
    verify = VerifyOperator(task_id="verify", job=JOB)
    chain(
        lease,
        StopWithSavepointOperator(task_id="stop_with_savepoint", job=JOB, reason="{{ params.reason }}"),
        ReplaceArtifactOperator(task_id="replace_artifact", job=JOB),
        RestartOperator(task_id="restart", job=JOB),
        verify,
    )
    # `rollback` runs in any case; `done` decides whether the run succeeds.
    verify >> [
        RollbackOperator(task_id="rollback", job=JOB).as_teardown(setups=lease, on_failure_fail_dagrun=True),
        EmptyOperator(task_id="done", trigger_rule=TriggerRule.NONE_FAILED),
    ]
