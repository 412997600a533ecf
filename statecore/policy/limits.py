"""The limit of an epoch that a job has met: it holds at sizes whose epochs stay below it, too.

A smaller size needs larger epochs for the same rows. So a scale-in may be the first to meet the limit; it is then
taken back, and what was learnt keeps the policy from trying it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from statecore.policy.busy import LEFT
from statecore.policy.figures import HOLDS_MS, Figures


@dataclass(frozen=True, slots=True)
class EpochLimit:
    """Rows that the source or a setting allowed an epoch, and when epochs last showed that."""

    rows: int
    seen_ms: int


def known_limit(limit: EpochLimit | None, figures: Figures) -> EpochLimit | None:
    """Return the limit that epochs show now; else the one before, unless an epoch has read more since or it is old."""
    if figures.epoch_limit is not None:
        return EpochLimit(figures.epoch_limit, figures.at_ms)
    if limit is None or figures.at_ms - limit.seen_ms > HOLDS_MS:
        return None
    since = (epoch.rows for epoch in figures.epochs if epoch.committed_ms > limit.seen_ms)
    return limit if max(since, default=0) <= limit.rows / LEFT else None
