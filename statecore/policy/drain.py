"""Estimates how long a backlog takes to drain."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.policy.capacity import Throughput, throughput
from statecore.policy.figures import Figures

# Worst scaling assumed for a job that was never measured at another parallelism.
_POOR_SCALING = 0.5


@dataclass(frozen=True, slots=True)
class DrainEstimate:
    """Estimated time to drain a backlog at a parallelism.

    Attributes:
        parallelism: The parallelism.
        seconds: The estimate, including the rescale; None when unknown or when the backlog does not drain.
        at_least_s, at_most_s: Range of the estimate; ``at_most_s`` is None when the backlog may never drain.
        drains: Whether the backlog drains; None when unknown.
        based_on: The figures behind the estimate, for people.

    """

    parallelism: int
    seconds: float | None
    at_least_s: float | None
    at_most_s: float | None
    drains: bool | None
    based_on: str


def estimate_drain(figures: Figures, parallelism: int) -> DrainEstimate:
    """Estimate how long the present backlog takes to drain at a parallelism while more rows arrive."""
    measured = throughput(figures)
    if figures.waiting is None:
        return _unknown(parallelism, "backlog unknown: no source reports it, or no epoch has read rows yet")
    if figures.waiting == 0:
        return DrainEstimate(parallelism, 0.0, 0.0, 0.0, True, "no rows wait")
    if measured is None:
        return _unknown(parallelism, f"too few epochs with rows at parallelism {figures.parallelism} to measure")
    pause_s = 0.0 if parallelism == figures.parallelism else (figures.rescale_ms or 0) / 1000
    arriving = figures.arriving or 0.0
    rate = measured.rows_per_second(parallelism)
    slow, fast = _range(measured, parallelism)
    seconds, at_least_s, at_most_s = (_drain_s(figures.waiting, arriving, each, pause_s) for each in (rate, fast, slow))
    return DrainEstimate(
        parallelism=parallelism,
        seconds=seconds,
        at_least_s=at_least_s,
        at_most_s=at_most_s,
        drains=seconds is not None,
        based_on=_words(figures, measured, parallelism, rate),
    )


def _range(measured: Throughput, parallelism: int) -> tuple[float, float]:
    """Return the slowest and the fastest rate that the measurements allow."""
    rate = measured.rows_per_second(parallelism)
    slow, fast = rate / (1 + measured.fit.error), rate * (1 + measured.fit.error)
    if measured.compared is None and parallelism > measured.parallelism:
        slow *= (parallelism / measured.parallelism) ** (_POOR_SCALING - 1)
    return slow, fast


def _drain_s(waiting: int, arriving: float, rate: float, pause_s: float) -> float | None:
    if rate <= arriving:
        return None
    return pause_s + (waiting + arriving * pause_s) / (rate - arriving)


def _words(figures: Figures, measured: Throughput, parallelism: int, rate: float) -> str:
    arrivals = "arrival rate unknown" if figures.arriving is None else f"{figures.arriving:,.0f} rows/s arrive"
    words = (
        f"{figures.waiting:,} rows wait, {arrivals}, {rate:,.0f} rows/s at parallelism {parallelism}, "
        f"from {measured.fit.epochs} epochs at parallelism {measured.parallelism}"
    )
    if parallelism == measured.parallelism:
        return words
    if measured.is_measured(parallelism):
        words += f", scaling {measured.scaling:.0%} of linear as measured at parallelism {measured.compared}"
    else:
        words += ", scaling assumed linear"
    if figures.rescale_ms is None:
        return f"{words}; plus the rescale, whose time is not known yet"
    return f"{words}; plus {figures.rescale_ms / 1000:,.0f} s for the rescale, the median so far"


def _unknown(parallelism: int, why: str) -> DrainEstimate:
    return DrainEstimate(parallelism, None, None, None, None, why)
