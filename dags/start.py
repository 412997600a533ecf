"""Start a stopped job from its newest epoch.

A failed start is not undone: the supervisor keeps trying, as after a crash. To end that, trigger the DAG `stop`.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param
from statecore_airflow.operators.step import StepOperator
from statecore_airflow.params.form import job_param

from statecore.operations.changes import RETRIES, RETRY_DELAY, StartJob

with DAG(
    dag_id="start",
    description="Start a stopped job from its newest epoch",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    tags=["statecore"],
    default_args={"retries": RETRIES, "retry_delay": RETRY_DELAY},
    params={
        "job": job_param(),
        "parallelism": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=32768,
            title="Parallelism",
            description="Number of subtasks to start with. Empty: as before.",
        ),
        "workers": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Workers",
            description="Number of Spark workers to start with. Empty: the cluster stays as it is.",
        ),
        "accept_lost_records": Param(
            False,
            type="boolean",
            title="Accept lost records",
            description="Go on, this once, without records that Kafka no longer has. The error of the refused driver "
            "says which these are.",
        ),
    },
) as dag:
    StepOperator(step=StartJob, job="{{ params.job }}")
