"""Loads a job's program, for a driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from statecore.catalog import JobRecord
from statecore.runtime.job import Job, fetch_artifact, load_job
from statecore.snapshot.checkpoints import CheckpointStore

Load = Callable[[JobRecord, CheckpointStore, Path], tuple[Path, Job]]
"""Loads a job's program, given an empty folder; returns the job file and the job that it describes."""


def load_registered(job: JobRecord, store: CheckpointStore, directory: Path) -> tuple[Path, Job]:
    """Load the job file that the job is registered with."""
    artifact = fetch_artifact(job.artifact, job.artifact_sha256, store.files, directory)
    return artifact, load_job(artifact, job.settings)
