"""The active supervisor: one at a time, elected by a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select, update

from statecore.catalog import tables
from statecore.catalog.queries import record
from statecore.catalog.records import Liveness, SupervisorRecord
from statecore.catalog.transactions import Transactions, again_after_conflict

supervisors = tables.supervisors

_SEAT = 1


class Supervisors:
    """The active supervisor; others wait for its seat."""

    def __init__(self, transactions: Transactions, liveness: Liveness) -> None:
        self._transactions = transactions
        self._liveness = liveness

    @again_after_conflict
    def lead(
        self,
        id: str,
        *,
        host: str,
        pid: int,
        process_started_ms: int,
        version: str,
        hung: Mapping[str, int] | None = None,
        replacing: str | None = None,
    ) -> SupervisorRecord:
        """Send a supervisor's heartbeat; return the active supervisor, which may be the caller or another.

        The caller gets the seat if it is free, or if its holder has been silent for too long. ``SupervisorRecord``
        explains the other arguments.

        Args:
            id: Id of the caller.
            host: Its host.
            pid: Its process.
            process_started_ms: When that process started.
            version: Its release.
            hung: The jobs and clusters that it is waiting for.
            replacing: A holder that the caller knows to be dead.

        """
        values: dict[str, Any] = {"id": id, "host": host, "pid": pid, "process_started_ms": process_started_ms}
        values |= {"version": version, "hung": dict(hung or {})}
        with self._transactions.write() as connection:
            row = connection.execute(select(supervisors).with_for_update()).one_or_none()
            now_ms = self._transactions.now_ms_in(connection)
            values["heartbeat_ms"] = now_ms
            if row is None:
                connection.execute(insert(supervisors).values(seat=_SEAT, started_ms=now_ms, **values))
            elif row.id == id:
                connection.execute(update(supervisors).values(**values))
            elif row.id == replacing or now_ms - row.heartbeat_ms >= self._liveness.supervising_ms:
                connection.execute(update(supervisors).values(started_ms=now_ms, **values))
            return record(connection.execute(_ACTIVE).one(), SupervisorRecord)

    def resign(self, id: str) -> None:
        """Release the seat, so that the next supervisor need not wait; do nothing if this one does not hold it."""
        with self._transactions.write() as connection:
            connection.execute(delete(supervisors).where(supervisors.c.id == id))

    def last(self) -> SupervisorRecord | None:
        """Return the last active supervisor, alive or not; None before the first, and after one has resigned."""
        with self._transactions.read() as connection:
            row = connection.execute(_ACTIVE).one_or_none()
            return None if row is None else record(row, SupervisorRecord)

    def is_alive(self, found: SupervisorRecord | None) -> bool:
        """Return whether this supervisor sent a heartbeat recently enough."""
        return found is not None and self._transactions.now_ms() - found.heartbeat_ms < self._liveness.supervising_ms


_ACTIVE = select(*(column for column in supervisors.c if column.name != "seat"))
