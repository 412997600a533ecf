"""Expiry of state: Flink's rule as a pure function of the epoch's clock."""

from __future__ import annotations

MAX_TIMESTAMP_MS = 2**63 - 1
"""Largest 64-bit timestamp, at which expiry saturates."""


def is_expired(timestamp_ms: int, ttl_ms: int, now_ms: int) -> bool:
    """Return whether a value stamped ``timestamp_ms`` has expired at ``now_ms``.

    It expires once ``timestamp_ms + ttl_ms <= now_ms``, boundary included. The sum saturates at 2^63-1, as in Flink's
    ``TtlUtils``.
    """
    return min(timestamp_ms + ttl_ms, MAX_TIMESTAMP_MS) <= now_ms
