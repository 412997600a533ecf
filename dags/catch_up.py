"""Drain a backlog on a larger cluster, and scale back.

The run first estimates how long the backlog takes to drain, at the present size and at the size to drain with. Then it
has the DAG `rescale` take the job to that size. It holds no lease while the backlog drains. Once backlog and event-time
lag have stayed under their limits, it takes the job back to its old size. It also takes the job back when the backlog
did not drain in time or a step failed: the run then fails, and the reason of the second rescale says why.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, TriggerRule, chain
from statecore_airflow.operators.catch_up import EstimateDrainOperator, ScaleBackOperator, ScaleOperator
from statecore_airflow.operators.wait_drained import WaitDrainedOperator
from statecore_airflow.params.form import job_param, reason_param

JOB = "{{ params.job }}"

with DAG(
    dag_id="catch_up",
    description="Drain a backlog on a larger cluster, and scale back",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    tags=["statecore"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "job": job_param(),
        "parallelism": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=32768,
            title="Parallelism",
            description="Number of subtasks to drain with. Empty: as many as drain in time, within the limits of the "
            "job's policy, and its upper limit if nothing can be estimated; without a policy twice as many as now.",
        ),
        "workers": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Workers",
            description="Number of Spark workers to drain with. Empty: as many as the job's policy needs for the "
            "subtasks, or in proportion to now.",
        ),
        "within_minutes": Param(
            15,
            type="number",
            exclusiveMinimum=0,
            title="Within minutes",
            description="How long draining may take, if no parallelism is given.",
        ),
        "backlog": Param(
            10_000,
            type="integer",
            minimum=0,
            title="Backlog",
            description="The backlog counts as drained below this number of rows: about what arrives during an epoch. "
            "For files, the estimated number of their rows.",
        ),
        "lag_minutes": Param(
            None,
            type=["null", "number"],
            minimum=0,
            title="Event-time lag in minutes",
            description="The backlog counts as drained below this lag. Empty: lag does not matter.",
        ),
        "hold_seconds": Param(
            60,
            type="number",
            minimum=0,
            title="Hold seconds",
            description="How long backlog and lag must stay under their limits.",
        ),
        "timeout_minutes": Param(
            240,
            type="number",
            exclusiveMinimum=0,
            title="Timeout in minutes",
            description="The job is taken back after this time, drained or not.",
        ),
        "method": Param(
            "auto",
            type="string",
            enum=["auto", "by_reference", "live"],
            title="Method",
            description="Rescale method.",
        ),
        "reason": reason_param(),
    },
) as dag:
    estimate = EstimateDrainOperator(task_id="estimate", job=JOB)
    scale_back = ScaleBackOperator(
        task_id="scale_back", job=JOB, conf=estimate.output["scale_back"], drained="wait_drained"
    ).as_teardown(setups=estimate, on_failure_fail_dagrun=True)
    wait = WaitDrainedOperator(task_id="wait_drained", job=JOB, trigger_rule=TriggerRule.NONE_FAILED)
    scale_out = ScaleOperator(task_id="scale_out", job=JOB, conf=estimate.output["scale_out"])
    chain(estimate, scale_out, wait, scale_back)
    # `scale_back` runs in any case; this task decides whether the run succeeds.
    wait >> EmptyOperator(task_id="drained")
