"""Ends a query between two batches: ``StreamingQuery.stop()`` interrupts the one in flight.

Spark checks between batches whether its query is still active. This module sets the state that ``stop()`` sets, but
without the interrupt: the batch in flight commits, and no other begins. A waiting trigger does not check; there is no
batch to interrupt then, so ``stop()`` ends it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

_IDLE_LOOKS = 2
"""Consecutive looks without a batch in flight before the query is stopped: one may fall just before a batch begins."""


class Stopping:
    """The end of a query.

    Args:
        query: The query.
        patience_s: Seconds that the batch in flight may still take; then it is interrupted, and the next driver
            replays it.

    """

    def __init__(self, query: StreamingQuery, patience_s: float) -> None:
        self._query = query
        self._deadline_s = time.monotonic() + patience_s
        self._idle = 0
        self._begin()

    def step(self) -> bool:
        """Look once; return whether the query has ended, or was ended now."""
        if not self._thread_lives():
            return True
        self._idle = 0 if self._query.status["isTriggerActive"] else self._idle + 1
        is_late = time.monotonic() > self._deadline_s
        if is_late:
            log.warning("the batch in flight takes too long; it is interrupted, and the next driver replays it")
        if is_late or self._idle >= _IDLE_LOOKS:
            self._query.stop()
            return True
        return False

    def _begin(self) -> None:
        """Prevent further batches."""
        try:
            state = _execution(self._query).state()
            package = state.get().getClass().getPackage().getName()
            loader = _execution(self._query).getClass().getClassLoader()
            terminated = loader.loadClass(f"{package}.TERMINATED$").getField("MODULE$").get(None)
            state.set(terminated)
        except Py4JError:
            # Another release of Spark: the query runs until a look falls between two batches.
            log.warning("Spark's query has no state to set; it is stopped between two of its batches", exc_info=True)

    def _thread_lives(self) -> bool:
        return bool(_execution(self._query).queryExecutionThread().isAlive())


def _execution(query: StreamingQuery) -> Any:
    """Return Spark's ``StreamExecution``, behind the wrapper that users get."""
    return query._jsq.streamingQuery()
