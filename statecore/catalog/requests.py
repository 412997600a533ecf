"""Requests to a running driver, and to the supervisor, which checks job files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from statecore.catalog import tables
from statecore.catalog.queries import one, record
from statecore.catalog.records import RequestKind, RequestRecord
from statecore.catalog.transactions import Transactions, again_after_conflict
from statecore.errors import OtherRequestError, UnknownRecordError

requests = tables.requests

_TO_SUPERVISOR: RequestKind = "check_job_file"


class Requests:
    """Requests to drivers and to the supervisor; methods on one request raise UnknownRecordError for an unknown one."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    @again_after_conflict
    def send(self, job: str, kind: RequestKind, arguments: Mapping[str, Any], idempotency_key: str) -> RequestRecord:
        """Send a request to the job's driver; a repeated key returns the same request.

        Raises:
            OtherRequestError: The key belongs to another request.

        """
        with self._transactions.write_job(job) as connection:
            by_key = requests.c.idempotency_key == idempotency_key
            request = one(connection, requests, by_key, kind=RequestRecord)
            if request is None:
                now_ms = self._transactions.now_ms_in(connection)
                connection.execute(
                    insert(requests).values(
                        job=job,
                        kind=kind,
                        arguments=dict(arguments),
                        idempotency_key=idempotency_key,
                        state="pending",
                        created_ms=now_ms,
                        updated_ms=now_ms,
                    )
                )
                request = one(connection, requests, by_key, kind=RequestRecord)
                assert request is not None
            elif (request.job, request.kind, request.arguments) != (job, kind, dict(arguments)):
                raise OtherRequestError(
                    f"found request {idempotency_key!r} to {request.kind} of job {request.job!r} with "
                    f"{request.arguments}; expected {kind} of job {job!r} with {dict(arguments)}; give the new request "
                    "an id of its own"
                )
            return request

    def take_next(self, job: str, *, under_way: Collection[int] = ()) -> RequestRecord | None:
        """Take the oldest unfinished request to the job's driver, or return None when there is none.

        A request that an earlier driver took but did not finish is returned again: that driver was replaced. Requests
        ``under_way``, which the caller is carrying out, are skipped.
        """
        unfinished = (
            select(requests)
            .where(
                requests.c.job == job,
                requests.c.kind != _TO_SUPERVISOR,
                requests.c.state.in_(["pending", "taken"]),
                requests.c.id.not_in(under_way),
            )
            .order_by(requests.c.id)
            .limit(1)
        )
        # Drivers poll every half second: check without the write lock first.
        with self._transactions.read() as connection:
            row = connection.execute(unfinished).one_or_none()
        if row is None or row.state == "taken":
            return None if row is None else record(row, RequestRecord)
        with self._transactions.write_job(job) as connection:
            row = connection.execute(unfinished).one_or_none()
            if row is None:
                return None
            connection.execute(
                update(requests)
                .where(requests.c.id == row.id)
                .values(state="taken", updated_ms=self._transactions.now_ms_in(connection))
            )
            return _get(connection, row.id)

    def to_supervisor(self) -> list[RequestRecord]:
        """Return the unfinished requests to check a job file, of all jobs, oldest first."""
        unfinished = select(requests).where(requests.c.kind == _TO_SUPERVISOR, requests.c.state == "pending")
        return self._transactions.all(unfinished.order_by(requests.c.id), RequestRecord)

    def finish(
        self, request_id: int, *, result: Mapping[str, Any] | None = None, error: str | None = None
    ) -> RequestRecord:
        """Record either the result of a request or the error it failed with; the first outcome stays."""
        if (result is None) == (error is None):
            raise ValueError("found both or neither of result and error; expected one; give the request's outcome")
        with self._transactions.write() as connection:
            request = _get(connection, request_id)
            connection.execute(
                update(requests)
                .where(requests.c.id == request_id, requests.c.state.in_(["pending", "taken"]))
                .values(
                    state="done" if error is None else "failed",
                    result=None if result is None else dict(result),
                    error=error,
                    updated_ms=self._transactions.now_ms_in(connection),
                )
            )
            return _get(connection, request.id)

    def get(self, request_id: int) -> RequestRecord:
        """Return a request."""
        with self._transactions.read() as connection:
            return _get(connection, request_id)


def _get(connection: Connection, request_id: int) -> RequestRecord:
    request = one(connection, requests, requests.c.id == request_id, kind=RequestRecord)
    if request is None:
        raise UnknownRecordError(
            f"there is no request {request_id}; expected an id that send() returned; check that it was made in "
            "this catalog"
        )
    return request
