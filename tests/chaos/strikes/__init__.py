"""What happens to the job: a victim, a moment, a blow."""

from __future__ import annotations

from tests.chaos.strikes import clocks, kills, pauses, postgres, savepoints, storage
from tests.chaos.strikes.base import Strike

DECK: tuple[Strike, ...] = (
    *kills.STRIKES,
    *storage.STRIKES,
    *pauses.STRIKES,
    *savepoints.STRIKES,
    *postgres.STRIKES,
    *clocks.STRIKES,
)
