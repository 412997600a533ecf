"""What differs between the kinds of job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from statecore.catalog import JobRecord, RescaleMethod, RescaleRunRecord
from statecore.operations.job_file_check import FileKind
from statecore.operations.savepoints import Savepoints
from statecore.queries.progress import Report
from statecore.queries.show import ShownCheckpoint
from statecore.snapshot.plan import RescalePlan


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
        methods: Rescale methods that it supports.
        ends_earlier_drivers: Whether the supervisor kills an earlier driver before it starts the next one, because no
            store refuses the earlier one's commits.

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

    @property
    @abstractmethod
    def savepoints(self) -> Savepoints:
        """The job's savepoints."""

    @abstractmethod
    def size(self, parallelism: str) -> str:
        """Return the job's size in words.

        Args:
            parallelism: The parallelism, in words.

        """

    @abstractmethod
    def newest(self) -> str | None:
        """Return the newest committed epoch or batch, in words; None before the first.

        Raises:
            StatecoreError: The checkpoint cannot be read.

        """

    @abstractmethod
    def require_rescalable(self, parallelism: int, method: str, max_parallelism: int | None) -> None:
        """Refuse a rescale that this kind does not support.

        Args:
            parallelism: The target.
            method: A rescale method, or ``auto``.
            max_parallelism: The target; None keeps it.

        Raises:
            ConfigurationError: The parameters do not fit the kind.
            CheckpointError: The checkpoint of a query cannot be rescaled.

        """

    @abstractmethod
    def require_statecore_job(self, what: str, remedy: str) -> None:
        """Refuse an operation that queries of Spark's own do not support.

        Args:
            what: The operation, for the message.
            remedy: What to do instead.

        Raises:
            ConfigurationError: The job is a query of Spark's own.

        """

    @abstractmethod
    def policy_method(self, asked: str | None) -> dict[str, str]:
        """Return the policy settings that the kind fixes (``method``); empty if a policy may choose.

        Raises:
            ConfigurationError: A policy of this kind cannot have the requested method.

        """

    @abstractmethod
    def start_first(self, parallelism: int) -> str:
        """Return when and how to start a stopped job that is to be rescaled to a parallelism."""

    @abstractmethod
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
        """Return the fields of the job for a start from a savepoint.

        Args:
            start_from: The savepoint: a path, a path in the job's store, or a URL.
            name: Name of the copy made for the start.
            generation: The job's newest generation, 0 before the first.
            roll_back: Whether to discard newer epochs or batches.
            claim: Whether the job takes ownership of the savepoint.
            skip_unpublished: Whether rows of the savepoint's epoch may stay unpublished.
            report: Called with the number of files done, and of all.

        Raises:
            ConfigurationError, CheckpointRefusedError: Newer ones exist, and ``roll_back`` is not set; or rows of the
                epoch are not published, and ``skip_unpublished`` is not set.
            StatecoreError: The savepoint cannot be read.

        """

    @abstractmethod
    def restarting(self, run: RescaleRunRecord, generation: int, max_parallelism: int | None) -> dict[str, Any]:
        """Return the fields of the job for its restart in a run that has stopped it.

        Args:
            run: The run, with its savepoint and, after a rescale, its rescaled state.
            generation: The job's newest generation.
            max_parallelism: Key groups after a rewrite; None keeps their number.

        """

    @abstractmethod
    def rescale_plan(
        self, parallelism: int, max_parallelism: int | None, method: RescaleMethod
    ) -> RescalePlan | ShownCheckpoint | None:
        """Return the plan of a job's state, or the description of a query's checkpoint.

        Returns:
            None for a job that has not committed an epoch.

        Raises:
            StatecoreError: It cannot be read.

        """

    @abstractmethod
    def checkpoint_to_try(self) -> str | None:
        """Return the URL of the checkpoint to try a new query file on; None if no trial is needed."""
