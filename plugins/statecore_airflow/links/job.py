"""Task links to the job's page and to its driver log."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, BaseOperatorLink, Context

from statecore_airflow.links.addresses import job_page, log_page


class JobPageLink(BaseOperatorLink):
    """Link to the page of the operator's job."""

    name = "Job"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the address of the page of ``operator.job``."""
        return job_page(_job(operator))


class DriverLogLink(BaseOperatorLink):
    """Link to the log of the newest driver of the operator's job."""

    name = "Driver log"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the address of the log of ``operator.job``."""
        return log_page(_job(operator))


LINKS = (JobPageLink(), DriverLogLink())


def show_links(operator: BaseOperator, context: Context) -> None:
    """Publish a task's links when it starts; Airflow itself publishes them when the task ends."""
    task_instance = context["ti"]
    for link in LINKS:
        task_instance.xcom_push(key=link.xcom_key, value=link.get_link(operator, ti_key=task_instance))


def _job(operator: Any) -> str:
    return str(operator.job)
