"""Move a job to another parallelism, and its cluster to another size.

The method says how state gets to its new subtasks. `by_reference` stops the job with a savepoint, gives its files to
the new subtasks, and starts the job again. `live` has the running driver adopt the parallelism between two epochs.
`rewrite` has Spark rewrite all state in between; only it changes the max parallelism. `auto` is `live` if a driver
runs, else `by_reference`.

The cluster grows before the job stops, and shrinks after the job was verified. One run at a time changes a job: a
second one is refused with the first one's run id. A run that fails after it took the lease is rolled back: the job
resumes at its old parallelism, on its old workers, from its newest committed epoch. A dry run shows the plan and
changes nothing.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, TriggerRule, chain
from statecore_airflow.operators.approval import ApprovalWhenAskedOperator
from statecore_airflow.operators.lease import BeginRescaleOperator
from statecore_airflow.operators.plan import PlanOperator
from statecore_airflow.operators.rollback import rollback_or_done
from statecore_airflow.operators.step import StepOperator
from statecore_airflow.params.form import job_param, reason_param

from statecore.operations.changes import RESCALE, RETRIES, RETRY_DELAY

JOB = "{{ params.job }}"

with DAG(
    dag_id="rescale",
    description="Move a job to another parallelism, and its cluster to another size",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    tags=["statecore"],
    default_args={"retries": RETRIES, "retry_delay": RETRY_DELAY},
    params={
        "job": job_param(),
        "parallelism": Param(
            type="integer",
            minimum=1,
            maximum=32768,
            title="Parallelism",
            description="Number of subtasks; at most the job's max parallelism.",
        ),
        "workers": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Workers",
            description="Number of Spark workers. Empty: the cluster stays as it is.",
        ),
        "method": Param(
            "auto",
            type="string",
            enum=["auto", "live", "by_reference", "rewrite"],
            values_display={
                "auto": "auto: live if a driver runs, else by_reference",
                "by_reference": "by_reference: stop with a savepoint, move handles only, start",
                "live": "live: between two epochs of the running driver",
                "rewrite": "rewrite: stop, rewrite all state with Spark, start",
            },
            title="Method",
            description="How the state gets to its new subtasks. by_reference and live cost the same at any state "
            "size; rewrite reads and writes all of it.",
        ),
        "max_parallelism": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=32768,
            title="New max parallelism",
            description="Number of key groups, for the method rewrite only. Empty: as before.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Show the plan in the log of the task plan, and change nothing.",
        ),
        "approval": Param(
            False,
            type="boolean",
            title="Ask for approval",
            description="Show the plan, and wait until a person approves it under Required Actions.",
        ),
        "reason": reason_param(),
    },
) as dag:
    plan = PlanOperator(task_id="plan", job=JOB)
    approval = ApprovalWhenAskedOperator(
        task_id="approval",
        job=JOB,
        subject="Rescale {{ params.job }} to parallelism {{ params.parallelism }}?",
        body="{{ ti.xcom_pull(task_ids='plan')['text'] }}",
    )
    # A step that the method does not need is skipped; later steps must still run.
    common = {"job": JOB, "trigger_rule": TriggerRule.NONE_FAILED}
    _, first, *others = RESCALE
    lease = BeginRescaleOperator(method="{{ ti.xcom_pull(task_ids='plan')['method'] }}", **common)
    # The lease is a setup, so Airflow makes the task after it wait for its success.
    steps = [StepOperator(step=first, job=JOB), *(StepOperator(step=step, **common) for step in others)]
    ends = rollback_or_done(lease)
    chain(plan, approval, lease, *steps, ends)
    # The lease skips needless steps at once. So each step also waits for the steps before those.
    task = dag.get_task
    task("stop_with_savepoint") >> task("rescale_state") >> task("verify") >> ends
