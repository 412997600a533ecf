"""Move a job to a new job file, through a savepoint.

The supervisor checks the new file before the job is stopped. If the job does not become healthy with it, the upgrade
is rolled back: the job resumes with its old file, from its newest committed epoch.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, chain
from statecore_airflow.operators.rollback import rollback_or_done
from statecore_airflow.operators.step import StepOperator
from statecore_airflow.params.form import job_param, reason_param

from statecore.operations.changes import RETRIES, RETRY_DELAY, UPGRADE

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
    lease, *others = (StepOperator(step=step, job=JOB) for step in UPGRADE)
    chain(lease, *others, rollback_or_done(lease))
