"""The limit of rows per epoch that a job has met; it also holds at larger sizes, whose epochs stay below it.

A smaller size needs larger epochs for the same rows, so a scale-in may be the first to meet the limit. The policy then
reverts the scale-in, and the remembered limit keeps it from a second attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from statecore.policy.busy import LEFT
from statecore.policy.figures import HOLDS_MS, Figures


@dataclass(frozen=True, slots=True)
class EpochLimit:
    """Rows that the source or a setting allows an epoch, and the time when epochs last showed it."""

    rows: int
    seen_ms: int


def known_limit(limit: EpochLimit | None, figures: Figures) -> EpochLimit | None:
    """Return the limit that epochs show now, else the earlier one, unless it is old or an epoch exceeded it."""
    if figures.epoch_limit is not None:
        return EpochLimit(figures.epoch_limit, figures.at_ms)
    if limit is None or figures.at_ms - limit.seen_ms > HOLDS_MS:
        return None
    since = (epoch.rows for epoch in figures.epochs if epoch.committed_ms > limit.seen_ms)
    return limit if max(since, default=0) <= limit.rows / LEFT else None
