"""Spark jobs of requests, in parallel to the stream: each in a separate thread, cancelled when the driver ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB_GROUP = "statecore-requests"


class SideJobs:
    """The threads of one generation.

    Args:
        spark: Runs their jobs.

    Attributes:
        closing: Whether they are being cancelled; an action that then fails reports nothing.

    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._threads: dict[int, threading.Thread] = {}
        self.closing = False

    def under_way(self) -> set[int]:
        """Return the ids of requests whose thread is alive."""
        return {request for request, thread in self._threads.items() if thread.is_alive()}

    def start(self, request: int, action: Callable[[], None]) -> None:
        """Start an action for a request; does nothing after ``close``."""
        if self.closing:
            return
        self._threads[request] = threading.Thread(target=self._run, args=(action,), daemon=True)
        self._threads[request].start()

    def close(self) -> None:
        """Cancel the jobs under way and wait for their threads."""
        self.closing = True
        for thread in list(self._threads.values()):
            while thread.is_alive():
                # Repeated: an action that has just started may have no job to cancel yet.
                self._spark.sparkContext.cancelJobGroup(_JOB_GROUP)
                thread.join(1)

    def _run(self, action: Callable[[], None]) -> None:
        self._spark.sparkContext.setJobGroup(_JOB_GROUP, "carries out a request", interruptOnCancel=True)
        action()
