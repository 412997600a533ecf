"""Traces: arrival rates over time."""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from statecore.errors import ConfigurationError

HEADER = ("t_s", "rows_per_s")


@dataclass(frozen=True, slots=True)
class Trace:
    """A piecewise constant arrival rate, from the first time to the last.

    Attributes:
        times_s: Times at which the rate changes, ascending from 0; the last one ends the trace.
        rates: Rows per second from each time until the next; one fewer than times.
        began_s: Time 0 by the clock of the world and of the answer.

    """

    times_s: Sequence[float]
    rates: Sequence[float]
    began_s: float = 0.0
    _arrived: Sequence[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = (rate * (after - at) for rate, (at, after) in zip(self.rates, pairwise(self.times_s), strict=True))
        object.__setattr__(self, "_arrived", list(accumulate(rows, initial=0.0)))

    @property
    def end_s(self) -> float:
        """When the trace ends."""
        return self.times_s[-1]

    def arrived(self, at_s: float) -> float:
        """Return the rows that arrived until a time."""
        index = min(bisect_right(self.times_s, at_s) - 1, len(self.rates) - 1)
        return self._arrived[index] + self.rates[index] * (min(at_s, self.end_s) - self.times_s[index])

    def when(self, rows: float) -> float:
        """Return the time from which more than a number of rows have arrived; infinity if the trace ends before."""
        index = bisect_right(self._arrived, rows) - 1
        if index >= len(self.rates):
            return math.inf
        return self.times_s[index] + (rows - self._arrived[index]) / self.rates[index]


def parse_trace(text: str, name: str) -> Trace:
    """Parse a CSV file with the header ``t_s,rows_per_s``; each rate holds until the next line, the last line ends it.

    Raises:
        ConfigurationError: A line does not fit; the error names it.

    """
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])
    if tuple(each.strip() for each in header) != HEADER:
        raise _error(name, 1, ",".join(header) or "nothing", f"the header {','.join(HEADER)}")
    times_s: list[float] = []
    rates: list[float] = []
    for values in reader:
        if not values:
            continue
        line = reader.line_num
        try:
            at_s, rate = (float(value) for value in values)
        except ValueError:
            raise _error(name, line, ",".join(values), "two numbers, a time and a rate") from None
        if not (math.isfinite(at_s) and math.isfinite(rate) and rate >= 0):
            raise _error(name, line, ",".join(values), "a finite time and a finite rate of at least 0")
        if times_s and at_s <= times_s[-1]:
            raise _error(name, line, f"time {at_s:g}", f"a later time than {times_s[-1]:g}")
        times_s.append(at_s)
        rates.append(rate)
    if len(times_s) < 2:
        raise _error(name, reader.line_num, f"{len(times_s)} rates", "at least two lines: the last one ends the trace")
    # Times from 0: times since 1970 would leave too few digits for the durations of epochs.
    return Trace([at_s - times_s[0] for at_s in times_s], rates[:-1], times_s[0])


def _error(name: str, line: int, found: str, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{name}, line {line}: found {found}; expected {expected}; correct the trace")
