"""Limits the rate of measurements that are too expensive for every epoch."""

from __future__ import annotations

import time

INTERVAL_S = 30.0


class Sampling:
    """A measurement that is due at once, and then at most every ``INTERVAL_S`` seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic()

    def due(self) -> bool:
        """Return whether a measurement is due, and if so schedule the next."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + INTERVAL_S
        return True
