"""The share of time that epochs run, and the limit of rows per epoch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_BUSY_MS = 60_000
_BUSY_EPOCHS = 3
LEFT = 0.95
"""A limited epoch reads at most this share of the rows that waited."""
# Fewest limited epochs that show a limit.
_FEWEST = 3


def busy_share(epochs: Sequence[tuple[int, int]], now_ms: int, *, waiting: bool) -> float | None:
    """Return the share of the last minute, or of the last three epochs, in which an epoch ran; None without any.

    Args:
        epochs: Start and duration of each in ms, in order.
        now_ms: The time.
        waiting: Whether rows wait. An unrecorded epoch may then be running, so the time since the newest one does not
            count.

    """
    if not epochs:
        return None
    if waiting:
        now_ms = epochs[-1][0] + epochs[-1][1]
    since_ms = min(now_ms - _BUSY_MS, *(started_ms for started_ms, _ in epochs[-_BUSY_EPOCHS:]))
    since_ms = max(since_ms, epochs[0][0])
    ran_ms = sum(max(0, start + duration - max(start, since_ms)) for start, duration in epochs)
    return min(1.0, ran_ms / max(1, now_ms - since_ms))


def epoch_limit(epochs: Sequence[tuple[int, int | None]]) -> int | None:
    """Return the rows that the source or a setting allows an epoch; None if nothing shows a limit.

    A limited epoch reads fewer rows than waited before it. If other epochs read more, the reason was another one.

    Args:
        epochs: Rows of each, and rows that waited after it, in order.

    """
    pairs = list(pairwise(epochs))
    limited = [rows for (_, before), (rows, _) in pairs if before is not None and rows <= LEFT * before]
    if len(limited) < _FEWEST:
        return None
    limit = max(limited)
    return limit if max(rows for rows, _ in epochs) <= limit / LEFT else None
