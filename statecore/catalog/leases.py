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

        The lease saves the job as it is. An expired lease of another owner is replaced, after the job is restored as by
        ``recover_expired``.

        Raises:
            LeaseHeldError: Another owner holds it; the message names owner and expiry.

        """
        with self._transactions.change_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            found = _get(connection, job)
            if found is not None and found.owner == owner:
                return _renew(connection, found, now_ms, ttl_ms)
            if found is not None and now_ms < found.expires_ms:
                raise _held(found, now_ms)
            if found is not None:
                _abandon(connection, found, now_ms, keep=owner)
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
        """Restore the job that the lease saved, from its newest epoch; renew the lease.

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
            found = _renew(connection, _own(connection, job, owner, now_ms), now_ms, ttl_ms)
            restore_job(connection, job, found.before, reason, now_ms)
            return found

    def release(self, job: str, owner: str) -> None:
        """Release the lease; does nothing if the owner does not hold it."""
        with self._transactions.write_job(job) as connection:
            connection.execute(delete(leases).where(leases.c.job == job, leases.c.owner == owner))

    def find(self, job: str) -> LeaseRecord | None:
        """Return the lease on a job, expired or not, or None."""
        with self._transactions.read() as connection:
            return _get(connection, job)

    def taken_back(self, job: str) -> TakenBackRecord | None:
        """Return the job's last lease that expired and was taken back; None once the job is changed again."""
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
        """Restore the job that an expired lease saved, from its newest epoch, and fail the owner's unfinished runs.

        If the owner's run has already ended, done or rolled back, the job stays unchanged. Returns the expired lease,
        or None if it was renewed, released or replaced in the meantime.
        """
        with self._transactions.change_job(job) as connection:
            now_ms = self._transactions.now_ms_in(connection)
            found = _get(connection, job)
            if found is None or now_ms < found.expires_ms:
                return None
            _abandon(connection, found, now_ms)
            return found


def _get(connection: Connection, job: str) -> LeaseRecord | None:
    return one(connection, leases, leases.c.job == job, kind=LeaseRecord)


def _own(connection: Connection, job: str, owner: str, now_ms: int) -> LeaseRecord:
    found = _get(connection, job)
    if found is None:
        raise UnknownRecordError(
            f"there is no lease on job {job!r}; expected one of {owner!r}; it was never taken, or it expired and "
            "its change was rolled back, so stop this run and start again"
        )
    if found.owner != owner:
        raise _held(found, now_ms)
    return found


def _renew(connection: Connection, found: LeaseRecord, now_ms: int, ttl_ms: int) -> LeaseRecord:
    renewed = dataclasses.replace(found, heartbeat_ms=now_ms, expires_ms=now_ms + ttl_ms)
    connection.execute(
        update(leases)
        .where(leases.c.job == found.job)
        .values(heartbeat_ms=renewed.heartbeat_ms, expires_ms=renewed.expires_ms)
    )
    return renewed


def _abandon(connection: Connection, found: LeaseRecord, now_ms: int, keep: str | None = None) -> None:
    """Delete an expired lease, restore the job and fail its running rescales, except the run ``keep``."""
    connection.execute(delete(leases).where(leases.c.job == found.job))
    reason = f"lease expired (owner {found.owner})"
    # The job needs no restore once the run behind the lease has ended.
    if _state(connection, found.owner) not in ("done", "failed"):
        restore_job(connection, found.job, found.before, reason, now_ms)
        made = TakenBackRecord(found.job, found.owner, now_ms)
        connection.execute(delete(taken_back).where(taken_back.c.job == found.job))
        connection.execute(insert(taken_back).values(**dataclasses.asdict(made)))
    unfinished = select(runs.c.run_id, runs.c.error, runs.c.aborted_by).where(
        runs.c.job == found.job, runs.c.state == "running", runs.c.run_id != (keep or "")
    )
    for run_id, error, user in connection.execute(unfinished).all():
        known = error or (None if user is None else f"aborted by {user}")
        text = reason if known is None else f"{known}; {reason}"
        end_run(connection, run_id, text, now_ms)


def _state(connection: Connection, owner: str) -> RescaleState | None:
    """Return the state of the run behind a lease; None if the change is not recorded as a run."""
    return connection.execute(select(runs.c.state).where(runs.c.run_id == owner)).scalar()


def _held(found: LeaseRecord, now_ms: int) -> LeaseHeldError:
    return LeaseHeldError(
        f"the lease on job {found.job!r} is held by {found.owner!r} and expires at {found.expires_ms} "
        f"(in {found.expires_ms - now_ms} ms); expected it to be free; wait until that run has ended or its "
        f"lease has expired, or end it, which rolls it back: `statecore rescale {found.job} --abort` for a rescale or "
        "an upgrade; otherwise mark the run failed in Airflow, or press Ctrl-C in its shell"
    )
