"""Figures of the metrics that a job's functions keep, and how they add up over subtasks and epochs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

_MOST_INTEGER = 2**63 - 1


class MetricKind(StrEnum):
    """What a metric is."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricFigure:
    """A metric of an operator.

    Attributes:
        count: Number of values: those that a histogram was given, one of a gauge per subtask that has set it in the
            newest epoch in which one did, 0 of a counter.
        total: Their sum; of a counter what it has counted.
        least, largest: The least and the largest of them; None of a counter, and without any.
        buckets: Of a histogram, how many values are above 2^(exponent - 1) and at most 2^exponent, by exponent; None
            stands for values of at most 0.

    """

    name: str
    kind: MetricKind
    count: int = 0
    total: int | float = 0
    least: int | float | None = None
    largest: int | float | None = None
    buckets: tuple[tuple[int | None, int], ...] = ()

    def quantile(self, share: float) -> float | None:
        """Return what ``share`` of a histogram's values do not exceed, at most twice too large; None without any."""
        seen = 0
        for exponent, count in self.buckets:
            seen += count
            if seen >= share * self.count:
                assert self.largest is not None
                return min(float(self.largest), upper_bound(exponent))
        return None


def bounded(value: int | float) -> int | float:
    """Return a number that JSON can hold: one beyond 64 bits, or beyond the largest float, becomes the nearest."""
    most = _MOST_INTEGER if isinstance(value, int) else sys.float_info.max
    return max(-most, min(most, value))


def upper_bound(exponent: int | None) -> float:
    """Return the largest value that a bucket can hold."""
    if exponent is None:
        return 0.0
    return math.inf if exponent >= sys.float_info.max_exp else 2.0**exponent


def bucket_of(value: float) -> int | None:
    """Return the exponent of the bucket that a value of a histogram is in; None for values of at most 0."""
    if value <= 0:
        return None
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if mantissa == 0.5 else exponent


def merged(figures: Iterable[MetricFigure]) -> tuple[MetricFigure, ...]:
    """Return the metrics of several subtasks, or of several epochs, together; sorted by name.

    Two metrics of one name have one kind.
    """
    by_name: dict[str, MetricFigure] = {}
    for each in figures:
        known = by_name.get(each.name)
        by_name[each.name] = each if known is None else _sum(known, each)
    return tuple(by_name[name] for name in sorted(by_name))


def after(before: Sequence[MetricFigure], epoch: Sequence[MetricFigure]) -> tuple[MetricFigure, ...]:
    """Return the metrics after an epoch: counters and histograms go on; a gauge that was set has its new value.

    A metric that the function no longer keeps, or keeps as another kind, is dropped.
    """
    known = {(each.name, each.kind): each for each in before}
    made = []
    for each in epoch:
        earlier = known.get((each.name, each.kind))
        if earlier is None or (each.kind is MetricKind.GAUGE and each.count):
            made.append(each)
        else:
            made.append(earlier if each.kind is MetricKind.GAUGE else _sum(earlier, each))
    return tuple(made)


def _sum(one: MetricFigure, other: MetricFigure) -> MetricFigure:
    buckets = dict(one.buckets)
    for exponent, count in other.buckets:
        buckets[exponent] = buckets.get(exponent, 0) + count
    return replace(
        one,
        count=one.count + other.count,
        total=bounded(one.total + other.total),
        least=min(_known(one.least, other.least), default=None),
        largest=max(_known(one.largest, other.largest), default=None),
        buckets=sorted_buckets(buckets),
    )


def sorted_buckets(buckets: dict[int | None, int]) -> tuple[tuple[int | None, int], ...]:
    """Return buckets in the order of their values."""
    return tuple(sorted(buckets.items(), key=lambda item: -math.inf if item[0] is None else item[0]))


def _known(*values: int | float | None) -> list[int | float]:
    return [value for value in values if value is not None]
