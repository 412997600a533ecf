"""Samples all jobs from the catalog, on a thread of its own: who asks for metrics never waits for the database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from statecore.catalog import Catalog, EpochRecord, SystemClock
from statecore.errors import StatecoreError
from statecore.operations.alert_loop import standings
from statecore.operations.backlog import backlog_rows, rows_per_file
from statecore.operations.measures import JobSample
from statecore.operations.standing import Standing

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
STALE_MS = 60_000
"""An older sample says nothing about the present."""
_UNTIL_IT_ACTS_S = 0.5
# To learn how many rows a file has.
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
        acts: Returns whether this supervisor acts; of several, one shows the jobs.

    """

    def __init__(self, catalog: Catalog, on_sample: Callable[[Sample], None], *, acts: Callable[[], bool]) -> None:
        self._catalog = catalog
        self._acts = acts
        self._on_sample = on_sample
        self._seen: dict[str, EpochRecord | None] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for a database that hangs."""
        self._stopping.set()

    def step(self) -> None:
        """Take a sample.

        Raises:
            CatalogError: The catalog cannot be reached.

        """
        at_ms = SystemClock().now_ms()
        jobs = {name: self._job(found) for name, found in standings(self._catalog).items()}
        self._on_sample(Sample(at_ms, jobs))

    def _job(self, found: Standing) -> JobSample:
        name, newest = found.job.name, found.figures.epoch
        epochs: list[EpochRecord] = []
        if name not in self._seen:
            # What was committed before this process began is not counted: its predecessor has.
            self._seen[name] = newest
        elif newest is not None:
            seen = self._seen[name]
            since_ms = 0 if seen is None else seen.committed_ms
            found_since = self._catalog.epochs(name, since_ms=since_ms)
            known = -1 if seen is None else next((n for n, each in enumerate(found_since) if _same(each, seen)), -1)
            epochs = found_since[known + 1 :]
            self._seen[name] = epochs[-1] if epochs else seen
        return JobSample(found, self._waiting(found), self._catalog.rescale_outcomes(name), epochs)

    def _waiting(self, found: Standing) -> int | None:
        backlog = found.figures.backlog
        sources = () if backlog is None else backlog.sources
        counts_files = any(each.records is None and each.files for each in sources)
        epochs = self._catalog.epochs(found.job.name, limit=_EPOCHS) if counts_files else []
        return backlog_rows(sources, rows_per_file(epochs))

    def _run(self) -> None:
        said = ""
        while True:
            acts = self._acts()
            try:
                if acts:
                    self.step()
                said = ""
            except Exception as error:
                # Once, until it changes: the catalog may be away for hours.
                if str(error) != said:
                    log.error("metrics: %s", error, exc_info=not isinstance(error, StatecoreError))
                said = str(error)
            if self._stopping.wait(INTERVAL_S if acts else _UNTIL_IT_ACTS_S):
                return


def _same(one: EpochRecord, other: EpochRecord) -> bool:
    return (one.lineage, one.epoch) == (other.lineage, other.epoch)
