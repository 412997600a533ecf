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


def strike(victim: str, how: str) -> Strike:
    """Return the first of the deck that hits a victim so."""
    return next(each for each in DECK if (each.victim, each.how) == (victim, how))
