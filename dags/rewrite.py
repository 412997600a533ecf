"""DAG ``rewrite``: rewrite a savepoint with Spark, also for another max parallelism."""

from __future__ import annotations

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Param
from statecore_airflow.notifications.job import Event, JobNotifier

from statecore.operations.kinds import PROGRAMS

# One expression, so that native rendering passes on the list itself and does not parse text.
ARGUMENTS = (
    "{{ ['--savepoint', params.savepoint, '--name', params.name]"
    " + ['--parallelism', params.parallelism | string]"
    " + (['--max-parallelism', params.max_parallelism | string] if params.max_parallelism else []) }}"
)

with DAG(
    dag_id="rewrite",
    description="Rewrite a savepoint with Spark, for another parallelism or max parallelism",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags=["statecore"],
    render_template_as_native_obj=True,
    params={
        "savepoint": Param(
            "",
            type="string",
            title="Savepoint",
            description="Path of the savepoint to read: its folder or its manifest.",
        ),
        "name": Param(
            "rewritten",
            type="string",
            title="Name",
            description="Name of the savepoint to write, in the same store.",
        ),
        "parallelism": Param(
            4, type="integer", minimum=1, title="Parallelism", description="Parallelism of the new savepoint."
        ),
        "max_parallelism": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=32768,
            title="Max parallelism",
            description="Number of key groups of the new savepoint. Empty: as in the old one.",
        ),
    },
) as dag:
    SparkSubmitOperator(
        task_id="rewrite",
        conn_id="spark_default",
        application=str(PROGRAMS / "rewrite.py"),
        application_args=ARGUMENTS,
        name="statecore-rewrite",
        on_failure_callback=JobNotifier(Event.FAILED, job=None),
    )
