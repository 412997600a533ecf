"""Durations of epochs from Spark's progress, the same clock for both sides."""

from __future__ import annotations

from statistics import median
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from benchmarks.cluster import until


def epochs_of(query: StreamingQuery) -> list[Any]:
    """Return the progress of each finished epoch, without triggers that ran none."""
    return [progress for progress in query.recentProgress if "addBatch" in progress["durationMs"]]


def seconds_of(query: StreamingQuery, epochs: int, *, timeout_s: float = 600) -> list[float]:
    """Wait for a number of epochs, and return their durations from trigger to end in seconds.

    Raises:
        StreamingQueryException: The query failed.
        TimeoutError: The epochs did not finish in time.

    """
    # Poll slowly: reading all progress takes CPU time from the epochs.
    what = f"{epochs} epochs"
    until(lambda: not query.isActive or len(epochs_of(query)) >= epochs, what, timeout_s=timeout_s, every_s=0.25)
    failure = query.exception()
    if failure is not None:
        raise failure
    return [progress["durationMs"]["triggerExecution"] / 1000 for progress in epochs_of(query)[:epochs]]


def parts_of(query: StreamingQuery, epochs: int) -> str:
    """Format the median of each part of the newest epochs, by Spark's own clock; the largest first."""
    durations = [progress["durationMs"] for progress in epochs_of(query)[-epochs:]]
    medians = {part: median(each.get(part, 0) for each in durations) for part in durations[-1]}
    return (
        ", ".join(f"{part} {medians[part]:,.0f}" for part in sorted(medians, key=medians.__getitem__, reverse=True))
        + " ms"
    )
