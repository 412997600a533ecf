"""The Spark job that copies a query's checkpoint to another number of state partitions, as a separate program."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from statecore.catalog import JobRecord
from statecore.operations.rescaling.spark_program import SparkProgram
from statecore.operations.submit import QUERY_PROGRAMS, submit_command
from statecore.private_files import write_private
from statecore.snapshot.job_files import read_job_file, read_source
from statecore.storage import open_store

_REFUSED = 2


class CopyCheckpoint(SparkProgram):
    """Copies a checkpoint, with proof and a trial restart of the job's query, with its Spark configuration.

    It runs on this machine alone, on all its cores: the copy is made in a folder of this machine.
    """

    what: ClassVar[str] = "copy"
    lasting: ClassVar[Collection[int]] = (_REFUSED,)

    def __init__(self, job: JobRecord, source: str, target: str, partitions: int) -> None:
        super().__init__(job, target.rpartition("/")[2])
        self._arguments = ["--checkpoint", source, "--target", target, "--partitions", str(partitions)]

    def command(self, folder: Path) -> list[str]:
        """Return the command; the query file and its settings, which may be secret, go into the folder."""
        job = self.job
        query, settings = folder / job.artifact.rpartition("/")[2], folder / "settings.json"
        if job.artifact_sha256 is None:
            query.write_bytes(read_source(job.artifact))
        else:
            query.write_bytes(read_job_file(open_store(job.store), job.artifact, job.artifact_sha256))
        write_private(settings, json.dumps(job.settings))
        return submit_command(
            dataclasses.replace(job, master_url="local[*]"),
            self.name,
            folder / "spark.properties",
            QUERY_PROGRAMS / "rescale.py",
            *self._arguments,
            *("--query", str(query), "--settings", str(settings)),
        )
