"""Leases: one owner at a time may change a job, and the lease saves the job as it was before."""

from __future__ import annotations

import dataclasses

from sqlalchemy import Connection, delete, insert, select, update

from statecore.catalog import tables
from statecore.catalog.queries import one, records
from statecore.catalog.records import LeaseRecord, RescaleState, TakenBackRecord
from statecore.catalog.restoring import restore_job, saved_job
from statecore.catalog.runs import end_run
from statecore.catalog.transactions import Transactions
from statecore.errors import LeaseHeldError, UnknownRecordError

leases, runs, taken_back = tables.leases, tables.rescale_runs, tables.taken_back


class Leases:
    """Leases on jobs."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def acquire(self, job: str, owner: str, ttl_ms: int) -> LeaseRecord:
        """Acquire the lease on a job, or renew the owner's; of several callers at once, one gets it.

        The lease saves the job as it is. An expired lease of another owner is recovered as by ``recover_expired``, then
        replaced.

        Raises:
            LeaseHeldError: Another owner holds it; the message names owner and expiry.

        """
        with self._transactions.change_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            current = _get(connection, job)
            if current is not None and current.owner == owner:
                return _renew(connection, current, now_ms, ttl_ms)
            if current is not None and now_ms < current.expires_ms:
                raise _held(current, now_ms)
            if current is not None:
                _abandon(connection, current, now_ms, keep=owner)
            connection.execute(delete(taken_back).where(taken_back.c.job == job))
            lease = LeaseRecord(job, owner, now_ms, now_ms, now_ms + ttl_ms, saved_job(connection, job))
            connection.execute(insert(leases).values(**dataclasses.asdict(lease)))
            self._transactions.record_change(connection, job, {"run": owner})
            return lease

    def renew(self, job: str, owner: str, ttl_ms: int) -> LeaseRecord:
        """Renew the owner's lease, even an expired one that was not replaced yet.

        Raises:
            LeaseHeldError: Another owner holds it now.
            UnknownRecordError: It expired and was recovered.

        """
        with self._transactions.write_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            return _renew(connection, _own(connection, job, owner, now_ms), now_ms, ttl_ms)

    def roll_back(self, job: str, owner: str, ttl_ms: int, reason: str) -> LeaseRecord:
        """Restore the job as the lease saved it, and renew the lease; the job resumes from its newest epoch.

        The reason becomes the error of the job's unfinished requests.

        Raises:
            LeaseHeldError: Another owner holds the lease now.
            UnknownRecordError: The lease expired, and the job was already restored; or the run is done.

        """
        with self._transactions.change_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            if _state(connection, owner) == "done":
                raise UnknownRecordError(
                    f"found run {owner!r} of job {job!r} done; expected one to roll back; the job keeps what the run "
                    "has changed, so change it back by a new run"
                )
            lease = _renew(connection, _own(connection, job, owner, now_ms), now_ms, ttl_ms)
            restore_job(connection, job, lease.before, reason, now_ms)
            return lease

    def release(self, job: str, owner: str) -> None:
        """Release the lease; does nothing if the owner does not hold it."""
        with self._transactions.write_job(job) as connection:
            connection.execute(delete(leases).where(leases.c.job == job, leases.c.owner == owner))

    def find(self, job: str) -> LeaseRecord | None:
        """Return the lease on a job, expired or not, or None."""
        with self._transactions.read() as connection:
            return _get(connection, job)

    def taken_back(self, job: str) -> TakenBackRecord | None:
        """Return the job's last lease that expired and was recovered; None once another lease was acquired."""
        with self._transactions.read() as connection:
            return one(connection, taken_back, taken_back.c.job == job, kind=TakenBackRecord)

    def expired(self) -> list[LeaseRecord]:
        """Return the leases that expired without being released."""
        with self._transactions.read() as connection:
            query = (
                select(leases)
                .where(leases.c.expires_ms <= self._transactions.now_ms_in(connection))
                .order_by(leases.c.job)
            )
            return records(connection.execute(query).all(), LeaseRecord)

    def recover_expired(self, job: str) -> LeaseRecord | None:
        """Restore the job as an expired lease saved it, and fail the owner's unfinished runs.

        If the owner's run has already ended, done or rolled back, the job stays unchanged. Returns the expired lease,
        or None if it was renewed, released or replaced in the meantime.
        """
        with self._transactions.change_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            lease = _get(connection, job)
            if lease is None or now_ms < lease.expires_ms:
                return None
            _abandon(connection, lease, now_ms)
            return lease


def _get(connection: Connection, job: str) -> LeaseRecord | None:
    return one(connection, leases, leases.c.job == job, kind=LeaseRecord)


def _own(connection: Connection, job: str, owner: str, now_ms: int) -> LeaseRecord:
    lease = _get(connection, job)
    if lease is None:
        raise UnknownRecordError(
            f"there is no lease on job {job!r}; expected one of {owner!r}; it was never taken, or it expired and "
            "its change was rolled back, so stop this run and start again"
        )
    if lease.owner != owner:
        raise _held(lease, now_ms)
    return lease


def _renew(connection: Connection, lease: LeaseRecord, now_ms: int, ttl_ms: int) -> LeaseRecord:
    renewed = dataclasses.replace(lease, heartbeat_ms=now_ms, expires_ms=now_ms + ttl_ms)
    connection.execute(
        update(leases)
        .where(leases.c.job == lease.job)
        .values(heartbeat_ms=renewed.heartbeat_ms, expires_ms=renewed.expires_ms)
    )
    return renewed


def _abandon(connection: Connection, lease: LeaseRecord, now_ms: int, keep: str | None = None) -> None:
    """Delete an expired lease, restore the job and fail its running rescales, except the run ``keep``."""
    connection.execute(delete(leases).where(leases.c.job == lease.job))
    reason = f"lease expired (owner {lease.owner})"
    # The job needs no restore once the run behind the lease has ended.
    if _state(connection, lease.owner) not in ("done", "failed"):
        restore_job(connection, lease.job, lease.before, reason, now_ms)
        made = TakenBackRecord(lease.job, lease.owner, now_ms)
        connection.execute(delete(taken_back).where(taken_back.c.job == lease.job))
        connection.execute(insert(taken_back).values(**dataclasses.asdict(made)))
    unfinished = select(runs.c.run_id, runs.c.error, runs.c.aborted_by).where(
        runs.c.job == lease.job, runs.c.state == "running", runs.c.run_id != (keep or "")
    )
    for run_id, error, user in connection.execute(unfinished).all():
        known = error or (None if user is None else f"aborted by {user}")
        text = reason if known is None else f"{known}; {reason}"
        end_run(connection, run_id, text, now_ms)


def _state(connection: Connection, owner: str) -> RescaleState | None:
    """Return the state of the run behind a lease; None if the change is not recorded as a run."""
    return connection.execute(select(runs.c.state).where(runs.c.run_id == owner)).scalar()


def _held(lease: LeaseRecord, now_ms: int) -> LeaseHeldError:
    return LeaseHeldError(
        f"the lease on job {lease.job!r} is held by {lease.owner!r} and expires in "
        f"{(lease.expires_ms - now_ms) / 1000:,.0f} s unless it is renewed; expected it to be free; wait until that "
        "run has ended or its lease has expired, or end it, which rolls it back: `statecore rescale "
        f"{lease.job} --abort` for a rescale or an upgrade; otherwise mark the run failed in Airflow, or press Ctrl-C "
        "in its shell"
    )
