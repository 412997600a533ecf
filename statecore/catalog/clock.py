"""Sources of time; the catalog's own is the database's, see ``Database.now_ms``."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time; tests use one that they can set."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch, UTC."""


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000
