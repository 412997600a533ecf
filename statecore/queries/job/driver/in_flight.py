"""Tells the watchdog whether a batch is in flight, which may take hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class BatchInFlight:
    """Looks like a lock that is held while a batch of the query is in flight."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def locked(self) -> bool:
        """Return whether the query is processing a batch."""
        status = self._query.status
        return bool(status["isTriggerActive"] and status["isDataAvailable"])
