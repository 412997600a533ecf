"""Arrival rates: steps, functions of time, and recorded traces."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from statecore.simulator import Trace, parse_trace

HOUR = 3600.0
TRACES = Path(__file__).parent / "traces"


def steps(end_s: float, *levels: tuple[float, float]) -> Trace:
    """Return rates that hold, each from its time, in seconds, until the next."""
    return Trace([*(at_s for at_s, _ in levels), end_s], [rate for _, rate in levels])


def curve(end_s: float, rate: Callable[[float], float], every_s: float = 15.0) -> Trace:
    """Return a function of time, sampled."""
    times_s = [index * every_s for index in range(round(end_s / every_s) + 1)]
    return Trace(times_s, [rate(at_s) for at_s in times_s[:-1]])


def noise(end_s: float, rate: float, share: float, every_s: float = 60.0) -> Trace:
    """Return a rate that is off by up to a share of it, anew each minute."""
    off = random.Random(1)  # noqa: S311 - repeatable, not secret
    return curve(end_s, lambda _: rate * (1 + share * off.uniform(-1, 1)), every_s)


def recorded(name: str) -> Trace:
    """Return a trace of ``traces/``."""
    path = TRACES / f"{name}.csv"
    return parse_trace(path.read_text(), path.name)
