"""Programs that a step runs on a query's checkpoint: copy it, or try another query file on it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from statecore.catalog import JobRecord
from statecore.operations.changes.change import Change
from statecore.operations.changes.spark_program import SparkProgram
from statecore.operations.kinds import QUERY_PROGRAMS
from statecore.operations.submit import submit_command
from statecore.private_files import write_private
from statecore.snapshot.job_files import read_job_file, read_source
from statecore.storage import open_store

_REFUSED = 2


class QueryProgram(SparkProgram):
    """A program that starts the job's query, with its Spark configuration.

    It runs on this machine alone, on all its cores: copies are made in a folder of this machine.
    """

    lasting: ClassVar[Collection[int]] = (_REFUSED,)
    program: ClassVar[str]

    def __init__(self, job: JobRecord, name: str, *arguments: str) -> None:
        super().__init__(job, name)
        self._arguments = arguments

    def run(self, timeout_s: float, change: Change) -> None:
        """Run the program if the job may run its query file; see ``SparkProgram.run``.

        Raises:
            JobDefinitionError: Nobody permitted the query file.

        """
        change.catalog.job_files.require_permitted(self.job)
        super().run(timeout_s, change)

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
            QUERY_PROGRAMS / self.program,
            *self._arguments,
            *("--query", str(query), "--settings", str(settings)),
        )


class CopyCheckpoint(QueryProgram):
    """Copies a checkpoint to another number of state partitions, with proof and a trial restart."""

    what: ClassVar[str] = "copy"
    program = "rescale.py"

    def __init__(self, job: JobRecord, source: str, target: str, partitions: int) -> None:
        arguments = ("--checkpoint", source, "--target", target, "--partitions", str(partitions))
        super().__init__(job, target.rpartition("/")[2], *arguments)


class TryQuery(QueryProgram):
    """Tries to restart the job's query file on a clone of a checkpoint, while its query may run."""

    what: ClassVar[str] = "trial restart"
    program = "trial.py"

    def __init__(self, job: JobRecord, checkpoint: str) -> None:
        super().__init__(job, f"of {job.artifact}", "--checkpoint", checkpoint)
