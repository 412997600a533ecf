"""The Spark job that rewrites a savepoint's state, as a separate program on the job's Spark."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from statecore.catalog import JobRecord
from statecore.operations.changes.spark_program import SparkProgram
from statecore.operations.kinds import PROGRAMS
from statecore.operations.submit import submit_command


class Rewrite(SparkProgram):
    """Submits the rewrite of a savepoint, given by its URL, with the job's master and Spark configuration.

    A retry finds its savepoint by name in the same store.
    """

    what: ClassVar[str] = "rewrite"

    def __init__(self, job: JobRecord, savepoint: str, name: str, parallelism: int, max_parallelism: int) -> None:
        super().__init__(job, name)
        arguments = ["--savepoint", savepoint, "--name", name]
        self._arguments = [*arguments, "--parallelism", str(parallelism), "--max-parallelism", str(max_parallelism)]

    def command(self, folder: Path) -> list[str]:
        """Return the command."""
        return submit_command(
            self.job, self.name, folder / "spark.properties", PROGRAMS / "rewrite.py", *self._arguments
        )
