"""How long epochs take, by Spark's own clock, which is the same on both sides."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming import StreamingQuery

from benchmarks.cluster import until


def epochs_of(query: StreamingQuery) -> list[Any]:
    """Return the progress of each epoch that is over; triggers without one are left out."""
    return [progress for progress in query.recentProgress if "addBatch" in progress["durationMs"]]


def seconds_of(query: StreamingQuery, epochs: int, *, timeout_s: float = 600) -> list[float]:
    """Wait until so many epochs are over, and return how long each took from trigger to end.

    Raises:
        StreamingQueryException: The query failed.
        TimeoutError: They are not over in time.

    """
    # Seldom, because reading all progress takes time that the epochs need.
    over = f"{epochs} epochs"
    until(lambda: not query.isActive or len(epochs_of(query)) >= epochs, over, timeout_s=timeout_s, every_s=0.25)
    failure = query.exception()
    if failure is not None:
        raise failure
    return [progress["durationMs"]["triggerExecution"] / 1000 for progress in epochs_of(query)[:epochs]]
