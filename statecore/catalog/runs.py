"""Rescale runs: their request, their progress, and the duration of each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from statecore.catalog import tables
from statecore.catalog.queries import one, records
from statecore.catalog.records import RescaleMethod, RescaleRunRecord, RescaleState, StepTimes
from statecore.catalog.transactions import Transactions
from statecore.errors import OtherRequestError, UnknownRecordError

runs = tables.rescale_runs


class Runs:
    """Rescale runs; methods on one run raise UnknownRecordError when it was never started."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def outcomes(self, job: str) -> dict[RescaleState, int]:
        """Return how many of the job's rescale runs are in each state."""
        query = select(runs.c.state, func.count().label("runs")).where(runs.c.job == job).group_by(runs.c.state)
        with self._transactions.read() as connection:
            return {row.state: row.runs for row in connection.execute(query).all()}

    def start(
        self,
        run_id: str,
        job: str,
        *,
        from_parallelism: int,
        to_parallelism: int,
        from_workers: int | None = None,
        to_workers: int | None = None,
        method: RescaleMethod = "by_reference",
        reason: str = "",
        asked: Mapping[str, Any] | None = None,
    ) -> RescaleRunRecord:
        """Record the start of a rescale; repeating the id returns the existing run unchanged.

        Raises:
            OtherRequestError: The id belongs to a run of another job, or with other parameters.

        """
        with self._transactions.write_job(job) as connection:
            known = one(connection, runs, runs.c.run_id == run_id, kind=RescaleRunRecord)
            if known is not None:
                require_same(known, job, asked or {})
                return known
            now_ms = self._transactions.now_ms_in(connection)
            connection.execute(
                insert(runs).values(
                    run_id=run_id,
                    job=job,
                    from_parallelism=from_parallelism,
                    to_parallelism=to_parallelism,
                    from_workers=from_workers,
                    to_workers=to_workers,
                    method=method,
                    reason=reason,
                    asked=dict(asked or {}),
                    state="running",
                    steps={},
                    created_ms=now_ms,
                    updated_ms=now_ms,
                )
            )
            return _get(connection, run_id)

    def get(self, run_id: str) -> RescaleRunRecord:
        """Return a rescale run."""
        with self._transactions.read() as connection:
            return _get(connection, run_id)

    def of(
        self, job: str, *, limit: int | None = None, since_ms: int = 0, until_ms: int | None = None
    ) -> list[RescaleRunRecord]:
        """Return the job's rescale runs that began between two times, both inclusive, newest first."""
        where = [runs.c.job == job, runs.c.created_ms >= since_ms]
        if until_ms is not None:
            where.append(runs.c.created_ms <= until_ms)
        query = select(runs).where(*where).order_by(runs.c.created_ms.desc(), runs.c.run_id).limit(limit)
        return self._transactions.all(query, RescaleRunRecord)

    def update(
        self, run_id: str, *, savepoint: str | None = None, rescaled: str | None = None, error: str | None = None
    ) -> RescaleRunRecord:
        """Update the manifests and the error of a running rescale; omitted arguments stay unchanged."""
        given = {"savepoint": savepoint, "rescaled": rescaled, "error": error}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        with self._transactions.write() as connection:
            _get(connection, run_id, lock=True)
            changes["updated_ms"] = self._transactions.now_ms_in(connection)
            connection.execute(update(runs).where(runs.c.run_id == run_id).values(**changes))
            return _get(connection, run_id)

    def mark_step(self, run_id: str, step: str, *, started: bool = False, ended: bool = False) -> RescaleRunRecord:
        """Record that a step starts or ends now; a repeated step keeps its first start and end."""
        with self._transactions.write() as connection:
            run = _get(connection, run_id, lock=True)
            now_ms = self._transactions.now_ms_in(connection)
            old = run.steps.get(step, StepTimes())
            new = StepTimes(
                started_ms=now_ms if started and old.started_ms is None else old.started_ms,
                ended_ms=now_ms if ended and old.ended_ms is None else old.ended_ms,
            )
            steps = {name: dataclasses.asdict(times) for name, times in {**run.steps, step: new}.items()}
            connection.execute(update(runs).where(runs.c.run_id == run_id).values(steps=steps, updated_ms=now_ms))
            return _get(connection, run_id)

    def abort(self, job: str, user: str, *, run_id: str | None = None) -> RescaleRunRecord:
        """Record that a user aborts the run that changes a job; the process that carries it out rolls it back.

        The first user is recorded. With ``run_id``, only that run is aborted.

        Raises:
            UnknownRecordError: No such run changes the job now.

        """
        with self._transactions.write_job(job) as connection:
            query = select(runs).where(runs.c.job == job, runs.c.state == "running").order_by(runs.c.created_ms.desc())
            running = records(connection.execute(query.with_for_update()).all(), RescaleRunRecord)[:1]
            if not running or run_id not in (None, running[0].run_id):
                changing = f"run {running[0].run_id!r} changing" if running else "no run changing"
                raise UnknownRecordError(
                    f"found {changing} job {job!r}; expected {f'run {run_id!r}' if run_id else 'a run'} to abort; look "
                    "at its state, it may have ended"
                )
            (run,) = running
            if run.aborted_by is None:
                now_ms = self._transactions.now_ms_in(connection)
                connection.execute(
                    update(runs).where(runs.c.run_id == run.run_id).values(aborted_by=user, updated_ms=now_ms)
                )
            return _get(connection, run.run_id)

    def finish(self, run_id: str, error: str | None = None) -> RescaleRunRecord:
        """Record the end of a run: done, or failed with an error; the first end stays.

        The same transaction gives back the workers that a done run no longer needs: a process killed in between would
        leave surplus workers. A run that a user aborted, or whose rollback has begun, cannot become done: without an
        error it stays as it is.
        """
        with self._transactions.write_job(self.get(run_id).job) as connection:
            run = _get(connection, run_id, lock=True)
            if run.state != "running" or (error is None and (run.is_given_up or run.aborted_by is not None)):
                return run
            now_ms = self._transactions.now_ms_in(connection)
            end_run(connection, run_id, error, now_ms)
            if error is None and run.removes_workers:
                _give_back_workers(connection, run, now_ms)
            return _get(connection, run_id)


def require_same(run: RescaleRunRecord, job: str, asked: Mapping[str, Any]) -> None:
    """Refuse another request under the id of a known run.

    Raises:
        OtherRequestError: The run is of another job, or has other parameters.

    """
    if (run.job, run.asked) != (job, asked):
        raise OtherRequestError(
            f"found run {run.run_id!r} of job {run.job!r}, {run.state}, which was asked for {_written(run.asked)}; "
            f"expected the same for job {job!r}, {_written(asked)}; give the new request an id of its own"
        )


def _written(asked: Mapping[str, Any]) -> str:
    given = (f"{name} {value!r}" for name, value in sorted(asked.items()) if value not in (None, ""))
    return ", ".join(given) or "nothing"


def end_run(connection: Connection, run_id: str, error: str | None, now_ms: int) -> None:
    """Record that a run is done, or failed with an error."""
    state = "done" if error is None else "failed"
    values = {"state": state, "error": error, "updated_ms": now_ms, "ended_ms": now_ms}
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(**values))


def _give_back_workers(connection: Connection, run: RescaleRunRecord, now_ms: int) -> None:
    """Set the cluster's desired size to the run's; the supervisor removes the surplus workers."""
    clusters, jobs = tables.clusters, tables.jobs.c
    cluster = select(jobs.cluster).where(jobs.name == run.job).scalar_subquery()
    connection.execute(
        update(clusters).where(clusters.c.name == cluster).values(desired_workers=run.to_workers, updated_ms=now_ms)
    )


def _get(connection: Connection, run_id: str, *, lock: bool = False) -> RescaleRunRecord:
    if lock:
        connection.execute(select(runs.c.run_id).where(runs.c.run_id == run_id).with_for_update())
    run = one(connection, runs, runs.c.run_id == run_id, kind=RescaleRunRecord)
    if run is None:
        raise UnknownRecordError(
            f"there is no rescale run {run_id!r}; expected one that was started; start it, or check that "
            "it was started in this catalog"
        )
    return run
