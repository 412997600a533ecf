"""When state expires: Flink's rule, as a pure function of the epoch's clock."""

from __future__ import annotations

MAX_TIMESTAMP_MS = 2**63 - 1
"""Where expiry saturates: the largest 64-bit timestamp."""


def is_expired(timestamp_ms: int, ttl_ms: int, now_ms: int) -> bool:
    """Tell whether a value stamped ``timestamp_ms`` has expired at ``now_ms``.

    It has as soon as ``timestamp_ms + ttl_ms <= now_ms``, at the boundary already. The sum saturates at
    2^63-1, as in Flink's ``TtlUtils``, so a very long TTL lives until the last millisecond there is.
    """
    return min(timestamp_ms + ttl_ms, MAX_TIMESTAMP_MS) <= now_ms
