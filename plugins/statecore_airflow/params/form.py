"""Shared fields of the DAGs' Trigger forms; DAG parsing builds them, so they must not query the catalog."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from statecore.catalog.job_names import job_names_file, read_job_names


def job_param(*, optional: bool = False) -> Param:
    """Return the parameter ``job``, empty for all jobs if ``optional``; suggests the names in the supervisor's file."""
    names, name = read_job_names(job_names_file()), "Name of the job, as registered in the catalog"
    shared: dict[str, Any] = {"title": "Job", "examples": names} if names else {"title": "Job"}
    if optional:
        return Param(None, type=["null", "string"], description=f"{name}; empty for all running jobs.", **shared)
    return Param(type="string", minLength=1, description=f"{name}.", **shared)


def reason_param() -> Param:
    """Return the parameter ``reason``."""
    return Param("", type="string", title="Reason", description="Recorded with the savepoint and the run.")
