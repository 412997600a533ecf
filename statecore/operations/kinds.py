"""The two kinds of job behind one interface: a job of statecore, and a query of Spark's own.

``kind_of`` is asked wherever they differ; savepoints have an interface of their own, ``savepoints_of``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from statecore.catalog import JobRecord, RescaleMethod
from statecore.errors import ConfigurationError
from statecore.model import default_max_parallelism
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.operations.job_file_check import JOB_FILE, QUERY_FILE, FileKind
from statecore.queries.job.current_checkpoint import current_checkpoint, newest_batch
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.refusals import refuse
from statecore.snapshot.checkpoints import CheckpointStore

_PACKAGE = Path(__file__).resolve().parents[1]
PROGRAMS = _PACKAGE / "runtime" / "programs"
"""The programs that spark-submit starts; as files, because it takes no module."""
QUERY_PROGRAMS = _PACKAGE / "queries" / "programs"
"""The same for queries of Spark's own."""


class JobKind(ABC):
    """What differs between the kinds of job.

    Args:
        job: The job.

    Attributes:
        title: The kind, with its article.
        unit: What its positions count.
        options: Options of ``register`` that name what this kind needs, by field of the job.
        file: How the file with its program is checked.
        program: The driver's program.
        methods: Rescale methods that it can have.
        ends_earlier_drivers: Whether the supervisor ends an earlier driver before it starts the next one: where no
            store refuses a second one's commits.

    """

    title: ClassVar[str]
    unit: ClassVar[str]
    options: ClassVar[Mapping[str, str]]
    file: ClassVar[FileKind]
    program: ClassVar[Path]
    methods: ClassVar[tuple[RescaleMethod, ...]]
    ends_earlier_drivers: ClassVar[bool] = False

    def __init__(self, job: JobRecord) -> None:
        self.job = job

    @staticmethod
    @abstractmethod
    def max_parallelism(parallelism: int) -> int:
        """Return the max parallelism of a new job that names none."""

    @abstractmethod
    def size(self) -> str:
        """Return the job's size in words."""

    @abstractmethod
    def newest(self) -> str | None:
        """Return the newest committed epoch or batch, in words; None before the first.

        Raises:
            StatecoreError: It cannot be read.

        """

    @abstractmethod
    def require_rescalable(self, parallelism: int, method: str, max_parallelism: int | None) -> None:
        """Refuse a rescale that this kind cannot have.

        Args:
            parallelism: The target.
            method: A rescale method, or ``auto``.
            max_parallelism: The target; None keeps it.

        Raises:
            ConfigurationError: The parameters do not fit the kind, or an earlier change is not settled.
            CheckpointError: The checkpoint of a query cannot be rescaled.

        """

    @abstractmethod
    def policy_method(self, asked: str | None) -> dict[str, str]:
        """Return the settings of a policy that the kind decides, ``method``; empty where a policy may choose.

        Raises:
            ConfigurationError: A policy of this kind cannot have the method that was asked for.

        """

    @abstractmethod
    def start_first(self, parallelism: int) -> str:
        """Return when and how to start a stopped job that is to be rescaled to a parallelism."""

    @abstractmethod
    def checkpoint_to_try(self) -> str | None:
        """Return the URL of the checkpoint on which Spark may refuse a new file; None if it refuses none."""


class StatecoreJob(JobKind):
    """A job of statecore."""

    title = "a job of statecore"
    unit = "epoch"
    options = {"artifact": "--artifact"}  # noqa: RUF012 - read only
    file = JOB_FILE
    program = PROGRAMS / "stream.py"
    methods = ("live", "by_reference", "rewrite")

    max_parallelism = staticmethod(default_max_parallelism)

    def size(self) -> str:
        """Return parallelism and max parallelism."""
        return f"parallelism {self.job.parallelism}, max parallelism {self.job.max_parallelism}"

    def newest(self) -> str | None:
        """Return the newest epoch in its store."""
        newest = CheckpointStore.at(self.job.store).newest()
        return None if newest is None else f"epoch {newest.epoch} of lineage {newest.lineage}"

    def require_rescalable(self, parallelism: int, method: str, max_parallelism: int | None) -> None:
        """Refuse nothing: a job can have every method."""

    def policy_method(self, asked: str | None) -> dict[str, str]:
        """Refuse a rewrite."""
        if asked == "rewrite":
            raise ConfigurationError(
                f"found the method rewrite for a policy of job {self.job.name!r}; expected live or by_reference, which "
                "copy no state; a rewrite is for queries of Spark's own"
            )
        return {}

    def start_first(self, parallelism: int) -> str:
        """Return that the start itself changes the parallelism."""
        name = self.job.name
        return f"at the new parallelism: `statecore start {name} --parallelism {parallelism}`, or the DAG start"

    def checkpoint_to_try(self) -> None:
        """Return None: a driver checks the job file against the manifest."""


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
        """Return the most: a query has no key groups."""
        return MAX_KEY_GROUPS

    def size(self) -> str:
        """Return the number of state partitions."""
        return f"{self.title}, {self.job.parallelism} state partitions"

    def newest(self) -> str | None:
        """Return the newest batch of its checkpoint."""
        batch = newest_batch(self.job)
        return None if batch is None else f"batch {batch} of {current_checkpoint(self.job)}"

    def require_rescalable(self, parallelism: int, method: str, max_parallelism: int | None) -> None:
        """Refuse all but a rewrite to another number of state partitions."""
        if method not in ("auto", *self.methods):
            require_statecore_job(self.job, f"the method {method}", "choose the method rewrite")
        if max_parallelism is not None:
            require_statecore_job(self.job, f"max parallelism {max_parallelism}", "leave it out: it has no key groups")
        require_settled(self.job)
        refuse(open_checkpoint(current_checkpoint(self.job)), parallelism)

    def policy_method(self, asked: str | None) -> dict[str, str]:
        """Return rewrite, and refuse every other."""
        if asked not in (None, *self.methods):
            require_statecore_job(self.job, f"the method {asked}", "leave --method out")
        return {"method": "rewrite"}

    def start_first(self, parallelism: int) -> str:
        """Return that it starts at the number of partitions that it has."""
        return f"first: `statecore start {self.job.name}`, or the DAG start"

    def checkpoint_to_try(self) -> str | None:
        """Return the checkpoint that it goes on from, if it has a batch."""
        return None if newest_batch(self.job) is None else current_checkpoint(self.job)


def kind_of(job: JobRecord) -> JobKind:
    """Return the kind of a job."""
    return SparkQuery(job) if job.is_query else StatecoreJob(job)


def require_statecore_job(job: JobRecord, what: str, remedy: str) -> None:
    """Refuse what a query of Spark's own cannot have.

    Args:
        job: The job.
        what: What was asked for.
        remedy: What to do instead.

    Raises:
        ConfigurationError: The job is a query of Spark's own.

    """
    if isinstance(kind_of(job), SparkQuery):
        raise ConfigurationError(
            f"found {what} for job {job.name!r}, which is a query of Spark's own; expected a job of statecore; {remedy}"
        )


def require_settled(job: JobRecord) -> None:
    """Refuse to change a query that was rolled back and has not started since.

    Raises:
        ConfigurationError: Its next driver has yet to find out which checkpoint it goes on from.

    """
    if job.left_checkpoint is not None:
        raise ConfigurationError(
            f"found that job {job.name!r} was rolled back and no driver has started since; expected one, which "
            f"goes on from {job.checkpoint} or {job.left_checkpoint}; wait for it, or remove what keeps it from "
            "starting: see `statecore status`"
        )


def rescaled_running(job: JobRecord, partitions: int | None) -> str:
    """Return how to give a query another number of state partitions."""
    return f"start it as it is, and rescale it: `statecore rescale {job.name} --parallelism {partitions}`"
