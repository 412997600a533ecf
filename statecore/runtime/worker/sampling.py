"""When to count what costs a little: now and then."""

from __future__ import annotations

import time

INTERVAL_S = 30.0


class Sampling:
    """Due at once, and then no oftener than every so many seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic()

    def due(self) -> bool:
        """Tell whether it is time; asking when it is puts off the next time."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + INTERVAL_S
        return True
