"""Links that a task shows in Airflow: to its job's page and to the log of the job's driver."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, BaseOperatorLink, Context

from statecore_airflow.links.addresses import job_page, log_page


class JobPageLink(BaseOperatorLink):
    """Leads to the page of the operator's job."""

    name = "Job"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the address of the page of ``operator.job``."""
        return job_page(_job(operator))


class DriverLogLink(BaseOperatorLink):
    """Leads to the end of the log of the newest driver of the operator's job."""

    name = "Driver log"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the address of the log of ``operator.job``."""
        return log_page(_job(operator))


LINKS = (JobPageLink(), DriverLogLink())


def show_links(operator: BaseOperator, context: Context) -> None:
    """Have a task show its links from its beginning on; Airflow by itself does so when it has ended."""
    task_instance = context["ti"]
    for link in LINKS:
        task_instance.xcom_push(key=link.xcom_key, value=link.get_link(operator, ti_key=task_instance))


def _job(operator: Any) -> str:
    return str(operator.job)
