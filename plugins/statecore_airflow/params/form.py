"""Parts of the forms with which DAGs are triggered; read while DAG files are parsed, so they ask no catalog."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from statecore.catalog.job_names import job_names_file, read_job_names


def job_param(*, optional: bool = False) -> Param:
    """Return the parameter ``job``, which suggests the jobs that the supervisor has written down.

    Args:
        optional: Whether it may be left empty, for all jobs.

    """
    names = read_job_names(job_names_file())
    suggestions: dict[str, Any] = {"examples": names} if names else {}
    if optional:
        return Param(
            None,
            type=["null", "string"],
            title="Job",
            description="Name of the job, as registered in the catalog; empty for all jobs that run.",
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
    return Param("", type="string", title="Reason", description="Why; kept with the savepoint and the run.")
