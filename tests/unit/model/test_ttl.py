"""The rule for expiry."""

from __future__ import annotations

import pytest

from statecore.model.ttl import is_expired

LAST = 2**63 - 1


@pytest.mark.parametrize(
    ("timestamp_ms", "ttl_ms", "now_ms", "expired"),
    [
        (0, 100, 99, False),
        (0, 100, 100, True),
        (0, 100, 101, True),
        (-200, 100, -101, False),
        (-200, 100, -100, True),
        (500, 100, 0, False),
        (0, 1, 1, True),
    ],
)
def test_state_expires_at_the_boundary_already(timestamp_ms, ttl_ms, now_ms, expired):
    assert is_expired(timestamp_ms, ttl_ms, now_ms) is expired


@pytest.mark.parametrize("timestamp_ms", [0, 1, 10**15])
def test_expiry_saturates_at_the_last_millisecond(timestamp_ms):
    assert not is_expired(timestamp_ms, LAST, LAST - 1)
    assert is_expired(timestamp_ms, LAST, LAST)


def test_a_negative_timestamp_does_not_saturate():
    assert not is_expired(-5, LAST, LAST - 6)
    assert is_expired(-5, LAST, LAST - 5)
