"""Samples all jobs from the catalog, on its own thread: a request for metrics never waits for the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from statecore.catalog import Catalog, EpochRecord, SystemClock
from statecore.operations.backlog import backlog_rows, rows_per_file
from statecore.operations.status.job_status import JobStatus, job_statuses
from statecore.operations.status.measures import JobSample
from statecore.repeating import Repeating

INTERVAL_S = 10.0
STALE_MS = 60_000
"""An older sample is out of date."""
# Sample soon after a supervisor begins to act: only epochs committed after the first sample are counted.
_LOOK_S = 0.5
# Epochs for the estimate of rows per file.
_EPOCHS = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """All jobs, by name, at one time."""

    at_ms: int
    jobs: Mapping[str, JobSample]


@dataclass(frozen=True, slots=True)
class Pass:
    """A supervisor's last pass that reached the catalog."""

    ended_ms: int
    duration_s: float


class Watch:
    """Samples all jobs every ten seconds.

    Args:
        catalog: The figures.
        on_sample: Called with each sample.
        acts: Returns whether this supervisor acts; of several, only that one samples the jobs.

    """

    def __init__(self, catalog: Catalog, on_sample: Callable[[Sample], None], *, acts: Callable[[], bool]) -> None:
        self._catalog = catalog
        self._acts = acts
        self._on_sample = on_sample
        self._seen: dict[str, EpochRecord | None] = {}
        self._due_s = 0.0
        self._repeating = Repeating("metrics", self.step, _LOOK_S, is_due=self._is_due)

    def start(self) -> None:
        """Begin."""
        self._repeating.start()

    def stop(self) -> None:
        """End, without waiting for a database that hangs."""
        self._repeating.stop()

    def step(self) -> None:
        """Take a sample.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        self._due_s = time.monotonic() + INTERVAL_S
        at_ms = SystemClock().now_ms()
        jobs = {name: self._job(status) for name, status in job_statuses(self._catalog).items()}
        self._on_sample(Sample(at_ms, jobs))

    def _job(self, status: JobStatus) -> JobSample:
        name, newest = status.job.name, status.figures.epoch
        epochs: list[EpochRecord] = []
        if name not in self._seen:
            # Epochs committed before this process began are not counted: its predecessor counted them.
            self._seen[name] = newest
        elif newest is not None:
            seen = self._seen[name]
            since_ms = 0 if seen is None else seen.committed_ms
            newer = self._catalog.epochs.of(name, since_ms=since_ms)
            known = -1 if seen is None else next((n for n, each in enumerate(newer) if _same(each, seen)), -1)
            epochs = newer[known + 1 :]
            self._seen[name] = epochs[-1] if epochs else seen
        return JobSample(status, self._waiting(status), self._catalog.runs.outcomes(name), epochs)

    def _waiting(self, status: JobStatus) -> int | None:
        backlog = status.figures.backlog
        sources = () if backlog is None else backlog.sources
        counts_files = any(each.records is None and each.files for each in sources)
        epochs = self._catalog.epochs.of(status.job.name, limit=_EPOCHS) if counts_files else []
        return backlog_rows(sources, rows_per_file(epochs))

    def _is_due(self) -> bool:
        return self._acts() and time.monotonic() >= self._due_s


def _same(one: EpochRecord, other: EpochRecord) -> bool:
    return (one.lineage, one.epoch) == (other.lineage, other.epoch)
