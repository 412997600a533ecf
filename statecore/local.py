"""Runs a job in this process: in a notebook, in a script, in a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from statecore.errors import ConfigurationError

if TYPE_CHECKING:
    from statecore.runtime.job import Job
    from statecore.runtime.local import LocalRun


def run(
    build: Callable[[Job], object],
    *,
    settings: Mapping[str, str] | None = None,
    until: Literal["available"] = "available",
    from_savepoint: str | Path | None = None,
    folder: str | Path = ".statecore",
    name: str = "notebook",
) -> LocalRun:
    """Run a job in this process over what its sources hold now, and end with a savepoint.

    The job is the one that ``statecore register`` registers: the same ``build``, epochs, state, sinks and exactly-once.
    A job that ran before continues after its newest epoch; if ``build`` has changed since, state is converted or
    refused as in production. The session is this process's Spark session, or a new one; it is not stopped.

    Args:
        build: ``build(job)`` of a job file, or a function defined in a notebook. Functions of its module are shipped to
            the workers by value.
        settings: The job's settings, ``job.settings`` in ``build``.
        until: ``"available"``: records that arrive while the job runs may be left to the next run.
        from_savepoint: A savepoint or checkpoint that the job begins with, of this job or another one: a path or a URL.
            Its state and its job stay as they are; rows of its epoch that no sink has yet are left to that job. While
            the run starts, it leaves a claim beside the savepoint, so it must be able to write there.
        folder: Where the catalog and, for each job, its checkpoints are kept. Delete it to begin anew, with the folders
            of the sinks.
        name: Name of the job within the folder.

    Returns:
        The run's ``job``, ``epochs``, ``rows``, ``outputs`` and ``savepoint``.

    Raises:
        FunctionError: A function failed, or an output does not fit; what was committed before stays.
        GenerationClaimedError: Another process runs the job in this folder.
        ConfigurationError: An argument, the job or the session is unusable, or the job has epochs and should begin with
            a savepoint.
        StatecoreError: The job cannot run, or cannot continue from its newest epoch or from the savepoint.

    """
    if until != "available":
        raise ConfigurationError(
            f"found until={until!r}; expected 'available'; to run without end, register the job and start it"
        )
    odd = {key: value for key, value in (settings or {}).items() if not isinstance(value, str)}
    if odd:
        raise ConfigurationError(
            f"found the settings {odd!r}; expected texts, as `statecore register --setting key=value` gives them; "
            "write str(…), and convert them in build"
        )
    # Only here: importing statecore loads neither Spark nor the catalog.
    from statecore.runtime.local import run_available

    return run_available(build, name=name, settings=settings or {}, folder=folder, from_savepoint=from_savepoint)
