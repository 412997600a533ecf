"""Rescale jobs when their policies say so.

One loop in the triggerer evaluates every job that has a policy (`statecore policy set`): how fast rows arrive, how many
wait, how far event time lags, what an epoch costs. Each decision becomes one run of the DAG `rescale`, with the figures
in its reason. One run of this DAG may carry several decisions. A decision for a job that another run is changing is
refused; that is no error. Each decision is posted to the connection `statecore_webhook`, once. The decisions
of a policy that only observes are posted, but not carried out.

Pausing this DAG stops the loop once Airflow reads this file again, every half minute. To see the decisions and their
reasons: `statecore policy decisions JOB`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetWatcher
from statecore_airflow.operators.autoscale import CarryOutOperator, TakeDecisionsOperator
from statecore_airflow.triggers.autoscale import DecisionTrigger

DECISIONS = Asset("statecore_decisions", watchers=[AssetWatcher(name="policies", trigger=DecisionTrigger())])

with DAG(
    dag_id="autoscale",
    description="Rescale jobs when their policies say so",
    doc_md=__doc__,
    schedule=[DECISIONS],
    catchup=False,
    tags=["statecore"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
) as dag:
    decisions = TakeDecisionsOperator(task_id="take_decisions")
    CarryOutOperator.partial(task_id="carry_out", map_index_template="{{ task.decision['job'] }}").expand(
        decision=decisions.output
    )
