"""A query of Spark's own as a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statecore.catalog import JobRecord, RescaleMethod, RescaleRunRecord
from statecore.errors import ConfigurationError
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.operations.job_file_check import QUERY_FILE
from statecore.operations.kinds.kind import JobKind
from statecore.operations.savepoints import CloneSavepoints, Savepoints
from statecore.queries.job.current_checkpoint import current_checkpoint, newest_batch
from statecore.queries.job.heads import Heads
from statecore.queries.job.start import begin_from
from statecore.queries.progress import Report
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.refusals import refuse
from statecore.queries.show import ShownCheckpoint, show

QUERY_PROGRAMS = Path(__file__).resolve().parents[2] / "queries" / "programs"
"""The programs of a query that spark-submit starts; as files, because it takes no module."""


class SparkQuery(JobKind):
    """A query of Spark's own."""

    title = "a query of Spark's own"
    unit = "batch"
    options = {"artifact": "--query", "checkpoint": "--checkpoint"}  # noqa: RUF012 - read only
    file = QUERY_FILE
    program = QUERY_PROGRAMS / "query.py"
    methods = ("rewrite",)
    ends_earlier_drivers = True

    @staticmethod
    def max_parallelism(parallelism: int) -> int:
        """Return the upper limit: a query has no key groups."""
        return MAX_KEY_GROUPS

    @property
    def savepoints(self) -> Savepoints:
        """Clones of its checkpoint."""
        return CloneSavepoints(self.job)

    def size(self, parallelism: str) -> str:
        """Return the number of state partitions, and where they lie."""
        return f"{parallelism} state partitions, in {self.job.checkpoint}"

    def newest(self) -> str | None:
        """Return the newest batch of its checkpoint."""
        batch = newest_batch(self.job)
        return None if batch is None else f"batch {batch} of {current_checkpoint(self.job)}"

    def require_rescalable(self, parallelism: int, method: str, max_parallelism: int | None) -> None:
        """Refuse all but a rewrite to another number of state partitions."""
        if method not in ("auto", *self.methods):
            self.require_statecore_job(f"the method {method}", "choose the method rewrite")
        if max_parallelism is not None:
            self.require_statecore_job(f"max parallelism {max_parallelism}", "leave it out: it has no key groups")
        refuse(open_checkpoint(current_checkpoint(self.job)), parallelism)

    def require_statecore_job(self, what: str, remedy: str) -> None:
        """Refuse."""
        raise ConfigurationError(
            f"found {what} for job {self.job.name!r}, which is {self.title}; expected a job of statecore; {remedy}"
        )

    def policy_method(self, asked: str | None) -> dict[str, str]:
        """Return rewrite, and refuse every other."""
        if asked not in (None, *self.methods):
            self.require_statecore_job(f"the method {asked}", "leave --method out")
        return {"method": "rewrite"}

    def start_first(self, parallelism: int) -> str:
        """Return the start at its present number of partitions."""
        return f"first: `statecore start {self.job.name}`, or the DAG start"

    def beginning(
        self,
        start_from: str,
        name: str,
        generation: int,
        *,
        roll_back: bool,
        claim: bool,
        skip_unpublished: bool,
        report: Report,
    ) -> dict[str, Any]:
        """Return a clone of the savepoint, which the query writes to."""
        savepoint, heads = self.savepoints.address(start_from), Heads(self.job.store)
        made = begin_from(self.job, savepoint, name, roll_back=roll_back, report=report)
        heads.append(made.url, f"start from {savepoint}", generation, is_base=True)
        return {"checkpoint": made.url, "parallelism": made.partitions}

    def restarting(self, run: RescaleRunRecord, generation: int, max_parallelism: int | None) -> dict[str, Any]:
        """Append a head of the run's checkpoint, and return it; an upgrade resumes from the job's own."""
        if run.rescaled is not None:
            Heads(self.job.store).append(run.rescaled, f"run {run.run_id}", generation)
        return {"checkpoint": run.rescaled}

    def rescale_plan(self, parallelism: int, max_parallelism: int | None, method: RescaleMethod) -> ShownCheckpoint:
        """Describe its checkpoint."""
        return show(open_checkpoint(current_checkpoint(self.job)))

    def checkpoint_to_try(self) -> str | None:
        """Return the checkpoint that it resumes from, if it has a batch."""
        return None if newest_batch(self.job) is None else current_checkpoint(self.job)


def rescaled_running(job: JobRecord, partitions: int | None) -> str:
    """Return how to give a query another number of state partitions."""
    return f"start it as it is, and rescale it: `statecore rescale {job.name} --parallelism {partitions}`"
