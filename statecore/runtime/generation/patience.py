"""How long a stop waits for the epoch in flight."""

from __future__ import annotations

LEAST_PATIENCE_SECONDS, MOST_PATIENCE_SECONDS = 30.0, 100.0
"""Bounds of a stop's wait for the epoch in flight. The caller waits at least two minutes for the savepoint."""


def patience_s(epoch_s: float) -> float:
    """Return how many seconds a stop waits for the epoch in flight, which may be stuck.

    Args:
        epoch_s: Seconds that the previous epoch took; 0 when there was none.

    """
    return min(max(2 * epoch_s, LEAST_PATIENCE_SECONDS), MOST_PATIENCE_SECONDS)
