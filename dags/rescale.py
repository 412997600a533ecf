"""DAG ``rescale``: stop a job with a savepoint, resize its cluster, go on at another parallelism."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, chain
from statecore_airflow.operators import (
    RescaleStateOperator,
    ResizeClusterOperator,
    RestartOperator,
    StopWithSavepointOperator,
    VerifyOperator,
)

JOB = "{{ params.job }}"
PARALLELISM = "{{ params.parallelism }}"
WORKERS = "{{ params.workers }}"
REASON = "{{ params.reason }}"

with DAG(
    dag_id="rescale",
    description="Stop with a savepoint, resize the cluster, resume at another parallelism",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags=["statecore"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    params={
        "job": Param(
            "flight_delays",
            type="string",
            minLength=1,
            title="Job",
            description="Name of the job, as registered in the catalog.",
        ),
        "parallelism": Param(
            4,
            type="integer",
            minimum=1,
            title="Parallelism",
            description="Number of subtasks to go on with; at most the job's max parallelism.",
        ),
        "workers": Param(
            2,
            type="integer",
            minimum=1,
            title="Workers",
            description="Number of Spark workers to go on with; ignored for a job without a cluster.",
        ),
        "reason": Param(
            "",
            type="string",
            title="Reason",
            description="Why; kept with the savepoint and the rescale run.",
        ),
    },
) as dag:
    chain(
        StopWithSavepointOperator(
            task_id="stop_with_savepoint", job=JOB, parallelism=PARALLELISM, workers=WORKERS, reason=REASON
        ),
        ResizeClusterOperator(task_id="resize_cluster", job=JOB, workers=WORKERS),
        RescaleStateOperator(task_id="rescale_state", job=JOB, parallelism=PARALLELISM, reason=REASON),
        RestartOperator(task_id="restart", job=JOB, parallelism=PARALLELISM),
        VerifyOperator(task_id="verify", job=JOB, parallelism=PARALLELISM),
    )
