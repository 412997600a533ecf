"""How long a backlog takes to drain."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.policy.figures import Figures
from statecore.policy.throughput import Throughput, throughput

# How well a job scales that has never been measured at another parallelism, at worst.
_POOR_SCALING = 0.5


@dataclass(frozen=True, slots=True)
class DrainEstimate:
    """How long a backlog takes to drain at a parallelism.

    Attributes:
        parallelism: That one.
        seconds: The estimate, a rescale to it included; None when it cannot be told, or the backlog does not drain.
        at_least_s, at_most_s: Its range; the second is None when it may be for ever.
        drains: Whether it drains; None when nothing is known.
        based_on: What the estimate is made from, in words.

    """

    parallelism: int
    seconds: float | None
    at_least_s: float | None
    at_most_s: float | None
    drains: bool | None
    based_on: str


def estimate_drain(figures: Figures, parallelism: int) -> DrainEstimate:
    """Return how long what waits now takes to drain at a parallelism, while more comes in."""
    measured = throughput(figures)
    if figures.waiting is None:
        return _unknown(parallelism, "how many rows wait is not known: no source tells, or no epoch has read any yet")
    if figures.waiting == 0:
        return DrainEstimate(parallelism, 0.0, 0.0, 0.0, True, "no row waits")
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
    coming = "not known how many arrive" if figures.arriving is None else f"{figures.arriving:,.0f} rows/s arrive"
    words = (
        f"{figures.waiting:,} rows wait, {coming}, {rate:,.0f} rows/s at parallelism {parallelism}, "
        f"from {measured.fit.epochs} epochs at parallelism {measured.parallelism}"
    )
    if parallelism == measured.parallelism:
        return words
    if measured.compared is None:
        words += ", scaling assumed to be linear"
    else:
        words += f", scaling {measured.scaling:.0%} of linear as measured at parallelism {measured.compared}"
    if figures.rescale_ms is None:
        return f"{words}; without the time of the rescale, which has not been measured yet"
    return f"{words}; {figures.rescale_ms / 1000:,.0f} s for the rescale as before"


def _unknown(parallelism: int, why: str) -> DrainEstimate:
    return DrainEstimate(parallelism, None, None, None, None, why)
