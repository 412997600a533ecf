"""A driver that commits an epoch a second, as far as the catalog can see."""

from __future__ import annotations

from statecore.catalog import (
    Catalog,
    EpochRecord,
    SourceBacklog,
)
from statecore.testing import ManualClock

JOB = "flights"
START_MS = 1_000_000_000


class Driver:
    """Commits an epoch a second, of one file of 1,000 rows each, and measures what waits every five."""

    def __init__(self, catalog: Catalog, clock: ManualClock, *, parallelism: int = 2, generation: int = 1) -> None:
        self.catalog, self.clock, self.parallelism = catalog, clock, parallelism
        self.generation = catalog.generations.claim(JOB, log_path="log").generation
        assert self.generation == generation
        self.epoch = self.rows = self.files_read = 0
        self.waiting = 0

    def run(self, seconds: int, *, arriving: int, reading: int) -> None:
        """Run for a time in which so many files arrive and are read every second."""
        for second in range(seconds):
            self.clock.advance(1_000)
            self.waiting += arriving - reading
            self.files_read += reading
            self.rows += reading * 1_000
            self.epoch += 1
            now_ms, took_ms = self.clock.now_ms(), 100 + 400 * reading + self.epoch % 3
            self.catalog.epochs.record(
                EpochRecord(
                    JOB,
                    1,
                    self.epoch,
                    self.generation,
                    self.parallelism,
                    reading * 1_000,
                    self.rows,
                    now_ms - took_ms,
                    now_ms,
                    took_ms,
                    backlog=(self._backlog(),),
                )
            )
            if second % 5 == 0:
                self.catalog.generations.heartbeat(JOB, self.generation)
                self.catalog.epochs.record_backlog(JOB, self.generation, [self._backlog()])

    def _backlog(self) -> SourceBacklog:
        return SourceBacklog("files", None, 10 * self.waiting, self.waiting, 3_000, self.files_read)
