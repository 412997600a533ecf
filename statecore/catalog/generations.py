"""Generations: runs of a job's driver, claimed one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, and_, insert, select, update

from statecore.catalog import tables
from statecore.catalog.queries import end_generation, fail_requests, newest_generation, one
from statecore.catalog.records import NO_HEARTBEAT, GenerationRecord, Liveness
from statecore.catalog.transactions import Transactions
from statecore.errors import CatalogError, GenerationClaimedError, UnknownRecordError

generations = tables.generations


class Generations:
    """Generations of jobs.

    Methods on one generation raise UnknownRecordError when the job has no such generation.
    """

    def __init__(self, transactions: Transactions, liveness: Liveness) -> None:
        self._transactions = transactions
        self._liveness = liveness

    def claim(self, job: str, *, log_path: str, if_wanted: bool = False) -> GenerationRecord:
        """Claim the job's next generation; of several callers at once, one gets it.

        The same transaction marks a predecessor without heartbeats failed, and fails requests to rescale a running
        stream. If the job's desired state is running, it also fails unfinished requests to stop: the new driver would
        carry them out.

        Args:
            job: Name of the job.
            log_path: Path of the driver's output; ``{generation}`` in it becomes the claimed number.
            if_wanted: Whether to claim only while the job's desired state is running.

        Raises:
            GenerationClaimedError: The job has a live driver, or its desired state is stopped.

        """
        with self._transactions.write_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            wanted = select(tables.jobs.c.desired_state).where(tables.jobs.c.name == job)
            is_wanted = connection.execute(wanted).scalar_one() == "running"
            if if_wanted and not is_wanted:
                raise GenerationClaimedError(
                    f"no driver of job {job!r} launched: the job was stopped in the meantime; "
                    f"`statecore start {job}` runs it again"
                )
            newest = newest_generation(connection, job)
            if newest is not None and self._liveness.is_alive(newest, now_ms):
                raise GenerationClaimedError(
                    f"job {job!r} has a live driver: generation {newest.generation} is {newest.state}, last heartbeat "
                    f"{now_ms - newest.heartbeat_ms} ms ago; expected none; stop the job first, or wait "
                    "until its heartbeat has been missing for long enough"
                )
            if newest is not None and not newest.ended:
                _end(connection, newest, now_ms=now_ms, state="failed", error=_lost(newest, now_ms))
            if is_wanted:
                overtaken = "the job was started again before it was stopped"
                fail_requests(connection, job, overtaken, now_ms, "stop_with_savepoint")
            # The request was for a running stream; the next driver starts at the job's parallelism.
            overtaken = "the driver ended before it applied the parallelism, and the next one starts with the job's"
            fail_requests(connection, job, overtaken, now_ms, "rescale")
            jobs = tables.jobs.c
            parallelism = select(jobs.parallelism).where(jobs.name == job)
            after = select(jobs.start_after_generation).where(jobs.name == job)
            number = 1 + max(connection.execute(after).scalar_one(), 0 if newest is None else newest.generation)
            connection.execute(
                insert(generations).values(
                    job=job,
                    generation=number,
                    state="launching",
                    parallelism=connection.execute(parallelism).scalar_one(),
                    started_ms=now_ms,
                    heartbeat_ms=now_ms,
                    log_path=log_path.replace("{generation}", str(number)),
                )
            )
            return _get(connection, job, number)

    def heartbeat(
        self,
        job: str,
        generation: int,
        *,
        state: Literal["launching", "running"] = "running",
        lineage: int | None = None,
        epoch: int | None = None,
        version: str | None = None,
        trigger_ms: int | None = None,
    ) -> bool:
        """Record that the driver is alive, its newest committed epoch, its release, and its trigger interval.

        Returns False when there is a higher generation or this one has ended: the caller must stop.
        """
        with self._transactions.write_job(job) as connection:
            record = _get(connection, job, generation)
            newest = newest_generation(connection, job)
            if record.ended or newest is None or newest.generation > generation:
                return False
            now_ms = self._transactions.now_ms_in(connection)
            given: dict[str, Any] = {"state": state, "heartbeat_ms": now_ms}
            if state == "running" and record.running_ms is None:
                given["running_ms"] = now_ms
            given |= {"lineage": lineage, "epoch": epoch, "version": version, "trigger_ms": trigger_ms}
            values = {field: value for field, value in given.items() if value is not None}
            connection.execute(update(generations).where(_is(job, generation)).values(**values))
            return True

    def record_driver(self, job: str, generation: int, *, host: str, pid: int, process_started_ms: int) -> None:
        """Record the process that the supervisor started for a generation."""
        process = {"host": host, "pid": pid, "process_started_ms": process_started_ms}
        with self._transactions.write_job(job) as connection:
            connection.execute(update(generations).where(_is(job, generation)).values(**process))

    def apply_parallelism(
        self, job: str, generation: int, parallelism: int, request: int, result: Mapping[str, Any]
    ) -> bool:
        """Record that a running driver has adopted a parallelism, as the job's from now on; finish the request.

        Returns False and changes nothing when there is a higher generation, this one has ended, the job's desired state
        is stopped, or the request is already finished.
        """
        with self._transactions.change_job(job) as connection:
            record, newest = _get(connection, job, generation), newest_generation(connection, job)
            jobs, requests = tables.jobs.c, tables.requests.c
            state = connection.execute(select(jobs.desired_state).where(jobs.name == job)).scalar_one()
            if record.ended or newest is None or newest.generation > generation or state != "running":
                return False
            done = connection.execute(
                update(tables.requests)
                .where(requests.id == request, requests.state.in_(["pending", "taken"]))
                .values(state="done", result=dict(result), updated_ms=self._transactions.now_ms_in(connection))
            )
            if done.rowcount == 0:
                return False
            connection.execute(update(tables.jobs).where(jobs.name == job).values(parallelism=parallelism))
            connection.execute(update(generations).where(_is(job, generation)).values(parallelism=parallelism))
            return True

    def end(
        self,
        job: str,
        generation: int,
        *,
        state: Literal["stopped", "failed"],
        error: str | None = None,
    ) -> GenerationRecord:
        """Record the end of a generation; the first end stays."""
        with self._transactions.write_job(job) as connection:
            record = _get(connection, job, generation)
            if record.ended:
                return record
            return _end(connection, record, now_ms=self._transactions.now_ms_in(connection), state=state, error=error)

    def stop_ended_query(self, job: str, generation: int) -> bool:
        """Set a query job whose query has ended by itself to stopped.

        Returns False and changes nothing unless this generation is the newest one and ended by itself.
        """
        with self._transactions.change_job(job) as connection:
            newest = newest_generation(connection, job)
            if newest is None or newest.generation != generation or not newest.ended_by_itself:
                return False
            # Clear the mark: otherwise the next start would be undone.
            connection.execute(update(generations).where(_is(job, generation)).values(error=None))
            values = {"desired_state": "stopped", "updated_ms": self._transactions.now_ms_in(connection)}
            connection.execute(update(tables.jobs).where(tables.jobs.c.name == job).values(**values))
            return True

    def import_stopped(
        self, job: str, generation: int, *, parallelism: int, lineage: int | None, epoch: int | None
    ) -> None:
        """Record a generation of a lost catalog, as stopped; raise CatalogError if the job has it or a later one."""
        with self._transactions.write_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            newest = newest_generation(connection, job)
            if newest is not None and newest.generation >= generation:
                raise CatalogError(
                    f"found generation {newest.generation} of job {job!r}; expected none from {generation} on; "
                    "the catalog already knows the job's history, so nothing was changed"
                )
            connection.execute(
                insert(generations).values(
                    job=job,
                    generation=generation,
                    state="stopped",
                    parallelism=parallelism,
                    started_ms=now_ms,
                    heartbeat_ms=now_ms,
                    ended_ms=now_ms,
                    lineage=lineage,
                    epoch=epoch,
                )
            )

    def fail_lost(self, job: str) -> GenerationRecord | None:
        """Mark the newest generation failed and return it if its heartbeat is overdue; else return None."""
        with self._transactions.write_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            newest = newest_generation(connection, job)
            if newest is None or newest.ended or self._liveness.is_alive(newest, now_ms):
                return None
            return _end(connection, newest, now_ms=now_ms, state="failed", error=_lost(newest, now_ms))

    def is_alive(self, generation: GenerationRecord | None) -> bool:
        """Return whether this generation has not ended and sent a heartbeat recently enough."""
        return generation is not None and self._liveness.is_alive(generation, self._transactions.now_ms())

    def newest(self, job: str) -> GenerationRecord | None:
        """Return the job's newest generation, or None before the first."""
        with self._transactions.read() as connection:
            return newest_generation(connection, job)

    def of(self, job: str, *, limit: int | None = None) -> list[GenerationRecord]:
        """Return the job's generations, newest first."""
        query = select(generations).where(generations.c.job == job).order_by(generations.c.generation.desc())
        return self._transactions.all(query.limit(limit), GenerationRecord)


def _is(job: str, generation: int) -> ColumnElement[bool]:
    return and_(generations.c.job == job, generations.c.generation == generation)


def _get(connection: Connection, job: str, generation: int) -> GenerationRecord:
    record = one(connection, generations, _is(job, generation), kind=GenerationRecord)
    if record is None:
        newest = newest_generation(connection, job)
        raise UnknownRecordError(
            f"job {job!r} has no generation {generation}; the newest is "
            f"{newest.generation if newest else 'none'}; claim a generation before using it"
        )
    return record


def _end(
    connection: Connection, record: GenerationRecord, *, now_ms: int, state: str, error: str | None
) -> GenerationRecord:
    end_generation(connection, record, now_ms=now_ms, state=state, error=error)
    return _get(connection, record.job, record.generation)


def _lost(record: GenerationRecord, now_ms: int) -> str:
    return f"{NO_HEARTBEAT} {now_ms - record.heartbeat_ms} ms while {record.state}; see {record.log_path}"
