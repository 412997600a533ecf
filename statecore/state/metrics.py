"""The metrics that a function keeps in one epoch of one subtask.

Each attempt at an epoch begins at zero, and only the attempt that is committed counts: the driver adds its figures to
those in the manifest before. So a replayed epoch counts once, and a rollback takes the metrics back with the state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeVar

from statecore.errors import ConfigurationError, StateError
from statecore.model.metrics import MetricFigure, MetricKind, bounded, bucket_of, sorted_buckets

MOST = 100
"""Metrics of one operator: each is written with every epoch."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Counter:
    """Counts up, from the job's start on; a replayed epoch counts once."""

    __slots__ = ("_count", "_saved")

    def __init__(self) -> None:
        self._count = self._saved = 0

    def inc(self, n: int = 1) -> None:
        """Count ``n`` more, which is not negative."""
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
            raise StateError(
                f"found inc({n!r}) of a counter; expected an integer of 0 or more; use a gauge for what goes down"
            )
        self._count = bounded(self._count + int(n))

    def save(self) -> None:
        """Note the present figure."""
        self._saved = self._count

    def restore(self) -> None:
        """Return to the noted figure."""
        self._count = self._saved

    def figure(self, name: str) -> MetricFigure:
        """Return the figure."""
        return MetricFigure(name, MetricKind.COUNTER, total=self._count)


class Gauge:
    """Has the value that it was set to last in this epoch."""

    __slots__ = ("_saved", "_value")

    def __init__(self) -> None:
        self._value: int | float | None = None
        self._saved: int | float | None = None

    def set(self, value: int | float) -> None:
        """Set the value."""
        self._value = _number(value, "set")

    def save(self) -> None:
        """Note the present figure."""
        self._saved = self._value

    def restore(self) -> None:
        """Return to the noted figure."""
        self._value = self._saved

    def figure(self, name: str) -> MetricFigure:
        """Return the figure."""
        if self._value is None:
            return MetricFigure(name, MetricKind.GAUGE)
        return MetricFigure(name, MetricKind.GAUGE, 1, self._value, self._value, self._value)


class Histogram:
    """Keeps how values are distributed, from the job's start on, in buckets of powers of two."""

    __slots__ = ("_buckets", "_count", "_largest", "_least", "_saved", "_total")

    def __init__(self) -> None:
        self._count, self._total = 0, 0.0
        self._least, self._largest = math.inf, -math.inf
        self._buckets: dict[int | None, int] = {}
        self._saved = self._content()

    def update(self, value: int | float) -> None:
        """Take a value."""
        value = _number(value, "update")
        self._count += 1
        self._total = bounded(self._total + value)
        self._least, self._largest = min(self._least, value), max(self._largest, value)
        bucket = bucket_of(value)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def save(self) -> None:
        """Note the present figure."""
        self._saved = self._content()

    def restore(self) -> None:
        """Return to the noted figure."""
        self._count, self._total, self._least, self._largest, buckets = self._saved
        self._buckets = dict(buckets)

    def figure(self, name: str) -> MetricFigure:
        """Return the figure."""
        if not self._count:
            return MetricFigure(name, MetricKind.HISTOGRAM)
        least, largest, buckets = self._least, self._largest, sorted_buckets(self._buckets)
        return MetricFigure(name, MetricKind.HISTOGRAM, self._count, self._total, least, largest, buckets)

    def _content(self) -> tuple[int, float, float, float, dict[int | None, int]]:
        return self._count, self._total, self._least, self._largest, dict(self._buckets)


Metric = TypeVar("Metric", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one function, by name; got in ``open``."""

    def __init__(self) -> None:
        self._metrics: dict[str, Any] = {}
        self._sealed = False

    def counter(self, name: str) -> Counter:
        """Return the counter of this name."""
        return self._metric(name, Counter)

    def gauge(self, name: str) -> Gauge:
        """Return the gauge of this name."""
        return self._metric(name, Gauge)

    def histogram(self, name: str) -> Histogram:
        """Return the histogram of this name."""
        return self._metric(name, Histogram)

    def seal(self) -> None:
        """Refuse metrics from now on: the function is open."""
        self._sealed = True

    def begin(self) -> None:
        """Note the figures before a record."""
        for each in self._metrics.values():
            each.save()

    def undo(self) -> None:
        """Return to the figures before the record."""
        for each in self._metrics.values():
            each.restore()

    def figures(self) -> tuple[MetricFigure, ...]:
        """Return the figures of this epoch and subtask."""
        return tuple(each.figure(name) for name, each in self._metrics.items())

    def _metric(self, name: str, kind: Callable[[], Metric]) -> Metric:
        known = self._metrics.get(name)
        if known is None:
            self._check(name)
            known = self._metrics[name] = kind()
        if type(known) is not kind:
            raise ConfigurationError(
                f"found the metric {name!r} as {_words(type(known))} and as {_words(kind)}; expected one kind per "
                "name; rename one"
            )
        return known

    def _check(self, name: str) -> None:
        if self._sealed:
            raise StateError(
                f"found the metric {name!r} asked for while records are processed; expected it in open(); get it "
                "there, and keep it"
            )
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"found the metric {name!r}; expected a name of letters, digits and '_' that does not begin with a "
                "digit; rename it"
            )
        if len(self._metrics) == MOST:
            raise ConfigurationError(
                f"found more than {MOST} metrics in one function, {name!r} among them; expected at most {MOST}, "
                "because each is written with every epoch; put what varies into an output"
            )


def _number(value: int | float, method: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise StateError(f"found {method}({value!r}) of a metric; expected a finite number; convert it")
    # Also numpy's numbers, which no manifest can hold.
    return bounded(int(value) if isinstance(value, Integral) else float(value))


def _words(kind: object) -> str:
    return str(getattr(kind, "__name__", kind)).lower()
