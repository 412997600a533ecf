"""The lag of the partitions of a source's topics; no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one partition.

    Attributes:
        position: Offset of the next record to read.
        begin: Offset of the oldest record that is there; None when unknown.
        end: Offset behind the newest one; None when unknown.
        oldest_ms: Time of the oldest record that waits, by its timestamp; None when none waits, or it is unknown.

    """

    topic: str
    partition: int
    position: int
    begin: int | None = None
    end: int | None = None
    oldest_ms: int | None = None

    @property
    def records(self) -> int | None:
        """Records that wait, at most: a topic with transactions, or a compacted one, has fewer. None when unknown."""
        if self.begin is None or self.end is None:
            return None
        return max(0, self.end - max(self.position, self.begin))


@dataclass(frozen=True, slots=True)
class Waiting:
    """The lag of all partitions of a source; None where it is unknown.

    Attributes:
        records: Records.
        partitions: Partitions.
        oldest_age_ms: Age of the oldest record; 0 when none waits.
        skew: Lag of the fullest partition divided by the average.

    """

    records: int | None
    partitions: int
    oldest_age_ms: int | None
    skew: float | None


def waiting(partitions: Sequence[PartitionLag], now_ms: int) -> Waiting:
    """Return the lag of a source from that of its partitions."""
    return Waiting(records(partitions), len(partitions), oldest_age_ms(partitions, now_ms), skew(partitions))


def records(partitions: Sequence[PartitionLag]) -> int | None:
    """Return the records that wait, over the partitions where their number is known; None without any."""
    known = _known(partitions)
    return sum(known) if known or not partitions else None


def oldest_age_ms(partitions: Sequence[PartitionLag], now_ms: int) -> int | None:
    """Return the age of the oldest record that waits: 0 when none does, None when unknown."""
    waiting = [each.oldest_ms for each in partitions if each.records]
    known = [at_ms for at_ms in waiting if at_ms is not None]
    if (waiting or records(partitions) is None) and not known:
        return None
    return max(now_ms - at_ms for at_ms in (*known, now_ms))


def skew(partitions: Sequence[PartitionLag]) -> float | None:
    """Return the lag of the fullest partition divided by the average; None when none waits."""
    known = _known(partitions)
    return max(known) * len(known) / sum(known) if any(known) else None


def _known(partitions: Sequence[PartitionLag]) -> list[int]:
    return [each.records for each in partitions if each.records is not None]
