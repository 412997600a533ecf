"""Verifies from the catalog that a changed job is healthy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile
from statistics import median

from statecore.catalog import Catalog, EpochRecord, GenerationRecord
from statecore.errors import UnhealthyJobError
from statecore.operations.backlog import backlog_rows, rows_per_file
from statecore.operations.status.health import Evidence, Health, assess, processing_rate

RESTART_LOOP = 2
"""This number of failed generations in one run is a restart loop."""
_GENERATIONS, _EPOCHS_SINCE, _EPOCHS_BEFORE = 20, 50, 20
# Health needs three epochs; they may take longer at a smaller size, and the first one loads its state.
_PATIENCE_EPOCHS, _LONGEST_PATIENCE_MS = 8, 3_600_000
# Factor on the time to drain the backlog at the old rate: a new driver is slow at first.
_PATIENCE_BACKLOGS = 2


def patience_ms(catalog: Catalog, job: str) -> int:
    """Return the time to wait for epochs, by recent epochs and the backlog; an hour at most.

    A job whose epochs take minutes cannot prove its health within seconds, nor can one whose next epoch reads the whole
    backlog of an outage.
    """
    read = [epoch for epoch in catalog.epochs.of(job, limit=_EPOCHS_BEFORE) if epoch.rows]
    backlog = catalog.overviews.figures(job).backlog
    waiting = None if backlog is None else backlog_rows(backlog.sources, rows_per_file(read))
    return min(_LONGEST_PATIENCE_MS, max(_epochs_ms(read), _backlog_ms(read, waiting or 0)))


def _epochs_ms(read: Sequence[EpochRecord]) -> int:
    apart = [after.committed_ms - before.committed_ms for before, after in pairwise(read)]
    return _PATIENCE_EPOCHS * int(median(apart)) if apart else 0


def _backlog_ms(read: Sequence[EpochRecord], rows: int) -> int:
    rate = processing_rate(read)
    return int(_PATIENCE_BACKLOGS * rows * 1000 / rate) if rate else 0


class Verification:
    """Checks a job repeatedly until it is healthy at its new parallelism, as ``health`` defines it.

    Only heartbeats since the first look count, so each process needs its own verification.
    """

    def __init__(self, job: str, run_id: str, parallelism: int) -> None:
        self._job = job
        self._run_id = run_id
        self._parallelism = parallelism
        self._generation = 0
        self._heartbeats: set[int] = set()

    def look(self, catalog: Catalog) -> Health:
        """Look at the newest generation, its epochs, and the backlog.

        Raises:
            UnhealthyJobError: The job will not become healthy: its drivers fail, or another run has changed it.
            UnknownRecordError: There is no such run.

        """
        failed = failed_drivers(catalog, self._job)
        if len(failed) >= RESTART_LOOP:
            numbers = ", ".join(str(each.generation) for each in reversed(failed))
            raise UnhealthyJobError(
                f"found generations {numbers} of job {self._job!r} failed, the last one with: "
                f"{failed[0].error or 'no reason given'} (log: {failed[0].log_path}); expected fewer than "
                f"{RESTART_LOOP}; remove the cause and begin a new run"
            )
        newest = catalog.generations.newest(self._job)
        if newest is None or newest.state != "running" or not catalog.generations.is_alive(newest):
            return Health(False, f"no live generation (newest: {_describe(newest)})")
        if newest.parallelism != self._parallelism:
            raise UnhealthyJobError(
                f"found generation {newest.generation} of job {self._job!r} at parallelism {newest.parallelism}; "
                f"expected {self._parallelism}; another run changed the job, so begin a new one"
            )
        health = assess(self._evidence(catalog, newest))
        message = f"generation {newest.generation} running at parallelism {self._parallelism}, {health.found}"
        return Health(health.is_healthy, message)

    def _evidence(self, catalog: Catalog, newest: GenerationRecord) -> Evidence:
        if newest.generation != self._generation:
            # The first heartbeat seen may be as old as liveness allows, so counting starts after it.
            self._generation, self._heartbeats = newest.generation, {newest.heartbeat_ms}
        self._heartbeats.add(newest.heartbeat_ms)
        run = catalog.runs.get(self._run_id)
        backlog = catalog.overviews.figures(self._job).backlog
        since = catalog.epochs.of(self._job, limit=_EPOCHS_SINCE, since_ms=run.created_ms)
        current = (newest.generation, self._parallelism)
        return Evidence(
            heartbeats=len(self._heartbeats) - 1,
            epochs=[each for each in since if (each.generation, each.parallelism) == current],
            before=catalog.epochs.of(self._job, limit=_EPOCHS_BEFORE, until_ms=run.created_ms),
            waiting=backlog.sources if backlog is not None and backlog.generation == newest.generation else None,
            share=min(1.0, run.to_parallelism / run.from_parallelism),
        )


def _describe(generation: GenerationRecord | None) -> str:
    if generation is None:
        return "none"
    return f"{generation.generation} {generation.state} {generation.error or ''}".rstrip()


def failed_drivers(catalog: Catalog, job: str) -> list[GenerationRecord]:
    """Return the generations that failed since the lease was taken, or since the job was stopped, newest first.

    Generations that failed before the stop did not have the new parallelism.
    """
    lease = catalog.leases.find(job)
    before = 0 if lease is None else lease.before.generation
    since = takewhile(
        lambda each: each.generation > before and each.state != "stopped",
        catalog.generations.of(job, limit=_GENERATIONS),
    )
    return [each for each in since if each.state == "failed"]
