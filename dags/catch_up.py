"""Drain a backlog with a larger cluster, and go back.

First the estimate: how long the backlog takes to drain as the job is now, and at the size to drain with. Then the job
is taken to that size by a run of the DAG `rescale`; nothing is held while its backlog drains. Once backlog and
event-time lag have stayed under their limits, the job is taken back to the size it had. It is taken back, too, when it
was not drained in time or something failed: the run then ends failed, and the reason of the second rescale says so.
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
    description="Drain a backlog with a larger cluster, and go back",
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
            description="Number of subtasks to drain with; empty takes as many as drain in time, within the limits of "
            "the job's policy; the most where nothing can be estimated.",
        ),
        "workers": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Workers",
            description="Number of Spark workers to drain with; empty has as many subtasks on each as the job's policy "
            "says, or as there are now.",
        ),
        "within_minutes": Param(
            15,
            type="number",
            exclusiveMinimum=0,
            title="Within minutes",
            description="In how long to drain, when no parallelism is given.",
        ),
        "backlog": Param(
            10_000,
            type="integer",
            minimum=0,
            title="Backlog",
            description="Rows that may wait when it is drained: about what arrives during an epoch. Of files, as many "
            "as they are estimated to hold.",
        ),
        "lag_minutes": Param(
            None,
            type=["null", "number"],
            minimum=0,
            title="Event-time lag in minutes",
            description="How far event time may be behind then; empty where it says nothing.",
        ),
        "hold_seconds": Param(
            60,
            type="number",
            minimum=0,
            title="Hold seconds",
            description="How long both have to stay under their limits.",
        ),
        "timeout_minutes": Param(
            240,
            type="number",
            exclusiveMinimum=0,
            title="Timeout in minutes",
            description="How long to wait for that, before the job is taken back all the same.",
        ),
        "method": Param(
            "auto",
            type="string",
            enum=["auto", "by_reference", "live"],
            title="Method",
            description="How the rescales are done.",
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
    # The job goes back in any case; that the run ends well is for this one to say.
    wait >> EmptyOperator(task_id="drained")
