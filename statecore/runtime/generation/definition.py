"""The part of a job's catalog record that its store keeps."""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.snapshot.job_definition import JobDefinition


def definition_of(job: JobRecord) -> JobDefinition:
    """Return the part of a job's record that its store keeps."""
    return JobDefinition(
        name=job.name,
        artifact=job.artifact,
        artifact_sha256=job.artifact_sha256,
        store=job.store,
        master_url=job.master_url,
        cluster=job.cluster,
        conf=job.conf,
        settings=job.settings,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        checkpoint=job.checkpoint,
    )
