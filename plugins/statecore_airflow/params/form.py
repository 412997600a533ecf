"""Shared fields of the DAGs' Trigger forms; DAG parsing builds them, so they must not query the catalog."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from statecore.catalog.job_names import job_names_file, read_job_names


def job_param(*, optional: bool = False) -> Param:
    """Return the parameter ``job``; it suggests the job names from the supervisor's file.

    Args:
        optional: Whether the field may be empty, for all jobs.

    """
    names = read_job_names(job_names_file())
    suggestions: dict[str, Any] = {"examples": names} if names else {}
    if optional:
        return Param(
            None,
            type=["null", "string"],
            title="Job",
            description="Name of the job, as registered in the catalog; empty for all running jobs.",
            **suggestions,
        )
    return Param(
        type="string",
        minLength=1,
        title="Job",
        description="Name of the job, as registered in the catalog.",
        **suggestions,
    )


def reason_param() -> Param:
    """Return the parameter ``reason``."""
    return Param("", type="string", title="Reason", description="Recorded with the savepoint and the run.")
