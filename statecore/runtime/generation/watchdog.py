"""Watches whether a driver's JVM answers and its query goes on: a Python thread that beats proves neither."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

ANSWER_S = 60.0
"""Longest time to an answer of the JVM; a full garbage collection of a large heap takes less."""
PROGRESS_S = 3600.0
"""Longest time that the query may spend at one thing other than an epoch: a listing of millions of files takes long."""
START_S = 3600.0
"""Longest time from the driver's start to its Spark session, which may wait for room on a cluster."""
_INTERVAL_S = 1.0
_DOUBT_S = 5.0


class Boundary(Protocol):
    """What an epoch in flight holds: a lock, for example."""

    def locked(self) -> bool:
        """Return whether an epoch is in flight."""


class Watchdog:
    """Asks the JVM about the query, in a thread of its own, because an answer may never come.

    An epoch may take hours: while one is in flight, it is enough that the JVM answers. The same holds, for up to an
    hour, before there is a session.

    Args:
        jvm: Returns the driver's JVM; None while there is none.

    """

    def __init__(self, jvm: Callable[[], Any]) -> None:
        self._jvm = jvm
        self._pid: int | None = None
        self._began_s = time.monotonic()
        self._has_session = False
        self._watched: tuple[StreamingQuery, Boundary] | None = None
        self._answered_s = self._moved_s = time.monotonic()
        self._doubted_s: float | None = None
        self._doing: Hashable = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="statecore-watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not joined: it may wait for the JVM for ever.
        self._ended.set()

    def session_started(self) -> None:
        """Note that there is a Spark session."""
        self._has_session = True

    def watch(self, query: StreamingQuery, boundary: Boundary) -> None:
        """Also watch a query, and whether an epoch is in flight."""
        self._watched = query, boundary

    def hang(self) -> str | None:
        """Return a message that says what hangs, and for how long; None without a hang.

        Only a hang that was seen for some seconds counts: a process that was frozen as a whole, such as by a pause of
        its machine, looks as if it hung until the JVM is asked again.
        """
        now_s = time.monotonic()
        hang = self._hang(now_s)
        self._doubted_s = None if hang is None else self._doubted_s or now_s
        return None if self._doubted_s is None or now_s - self._doubted_s < _DOUBT_S else hang

    def _hang(self, now_s: float) -> str | None:
        if now_s - self._answered_s > ANSWER_S:
            return (
                f"found no answer from the driver's JVM for {now_s - self._answered_s:.0f} s; expected one within "
                f"{ANSWER_S:.0f} s; the next driver resumes from the newest epoch; see the log for the last lines "
                "before it hung, and give the driver more memory if it collected garbage"
            )
        if not self._has_session and now_s - self._began_s > START_S:
            return (
                f"found no Spark session {now_s - self._began_s:.0f} s after the driver began; expected one within "
                f"{START_S:.0f} s; the next driver tries again; see the log for what it waited for, and check that the "
                "cluster has room for the driver's executors"
            )
        if now_s - self._moved_s > PROGRESS_S:
            return (
                f"found the query at {self._doing} for {now_s - self._moved_s:.0f} s without an epoch in flight; "
                f"expected it to go on within {PROGRESS_S:.0f} s; the next driver resumes from the newest epoch; check "
                "that its sources answer"
            )
        return None

    def kill(self) -> None:
        """Kill the JVM; then every call into it fails, and the driver ends.

        One that never answered has no known process. The supervisor ends it, as it does every driver that outlives its
        generation.
        """
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            try:
                doing = self._ask()
            except Exception:
                log.debug("the JVM could not be asked about the query", exc_info=True)
                continue
            self._answered_s = time.monotonic()
            if doing is None or doing != self._doing:
                self._doing, self._moved_s = doing, self._answered_s

    def _ask(self) -> Hashable:
        """Return the query's activity; None when it may take any time."""
        java = self._jvm().java.lang
        if self._pid is None:
            self._pid = int(java.ProcessHandle.current().pid())
        java.System.nanoTime()
        if self._watched is None:
            return None
        query, boundary = self._watched
        status = query.status
        if boundary.locked() or not status["isTriggerActive"]:
            return None
        # While no data arrives, Spark reports progress every ten seconds.
        progress = query._jsq.lastProgress()
        return status["message"], None if progress is None else progress.timestamp()
