"""Tell people that a job is ill, and that it is well again.

One loop in the triggerer looks at every job, as `statecore status` does, and at the supervisor. Each change of an alert
becomes one run of this DAG. The run logs the message and posts it to the connection `statecore_webhook`, once. One run
may carry several changes.

Pausing this DAG stops the loop once Airflow reads this file again, every half minute. The supervisor sends the same
alerts to its own webhook, if it has one, but cannot report its own death.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetWatcher
from statecore_airflow.operators.alerts import TellAlertsOperator
from statecore_airflow.triggers.alerts import AlertTrigger

CHANGES = Asset("statecore_alerts", watchers=[AssetWatcher(name="alerts", trigger=AlertTrigger())])

with DAG(
    dag_id="alerts",
    description="Tell people that a job is ill, and that it is well again",
    doc_md=__doc__,
    schedule=[CHANGES],
    catchup=False,
    tags=["statecore"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
) as dag:
    TellAlertsOperator(task_id="tell")
