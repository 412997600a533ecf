"""Assesses a job after a change: epochs commit, and it keeps up as well as before; pure.

While there is a backlog, a healthy job commits epochs, and either processes at least ``RATE_TOLERANCE`` of the old
rows per second or reduces the backlog: epochs of a steady flow are small, and slow for their rows. After a scale-in
the expected rate falls in proportion to the parallelism. Without a backlog, or if no source reports one, heartbeats
suffice: there may be nothing to commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from statecore.catalog import EpochRecord, SourceBacklog, over_all

RATE_TOLERANCE = 0.7
"""Share of the old rate that counts as equal: a new driver warms up, and rates vary."""
_UNITS = ("records", "bytes", "files")  # the finest first
_EPOCHS = 3
_HEARTBEATS = 2


@dataclass(frozen=True, slots=True)
class Evidence:
    """Figures of the job.

    Attributes:
        heartbeats: New heartbeats of its driver since the first look.
        epochs: Epochs that the driver has committed at the new parallelism, in order.
        before: The last epochs before the change, in order.
        waiting: The backlog that the driver has measured; None before it has.
        share: Expected share of the old rate; 1 unless the job was scaled in.

    """

    heartbeats: int
    epochs: Sequence[EpochRecord]
    before: Sequence[EpochRecord]
    waiting: Sequence[SourceBacklog] | None
    share: float


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a job is healthy, with the figures in words."""

    is_healthy: bool
    found: str


def assess(evidence: Evidence) -> Health:
    """Assess the job now."""
    summary = f"{evidence.heartbeats} new heartbeats, {len(evidence.epochs)} epochs"
    if evidence.waiting is None:
        return Health(False, f"{summary}, backlog not measured yet")
    total = over_all(evidence.waiting)
    unit = next((unit for unit in _UNITS if getattr(total, unit)), None)
    if unit is None:
        known = any(getattr(total, unit) is not None for unit in _UNITS)
        summary = f"{summary}, {'nothing waits' if known else 'backlog unknown'}"
        return Health(evidence.heartbeats >= _HEARTBEATS, summary)
    waiting: int = getattr(total, unit)
    if len(evidence.epochs) < _EPOCHS:
        return Health(False, f"{summary}, {waiting} {unit} wait")
    # The first epoch loads its state.
    rate, old = processing_rate(evidence.epochs[1:]), processing_rate(evidence.before)
    expected = RATE_TOLERANCE * evidence.share * (old or 0.0)
    amounts = (getattr(over_all(each.backlog), unit) for each in evidence.epochs)
    first: int = next((amount for amount in amounts if amount is not None), waiting)
    keeps_up = waiting < first or (rate is not None and rate >= expected)
    summary = f"{summary}, {waiting} {unit} wait after {first}, {rate or 0:.0f} rows/s of at least {expected:.0f}"
    return Health(keeps_up, summary)


def processing_rate(epochs: Sequence[EpochRecord]) -> float | None:
    """Return the median rows per second of epochs with rows; None without any."""
    rates = [each.rows * 1000 / each.duration_ms for each in epochs if each.rows and each.duration_ms]
    return median(rates) if rates else None
