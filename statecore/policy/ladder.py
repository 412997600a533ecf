"""The throughput of a job at each allowed size, beside its arrivals."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.policy.capacity import throughput
from statecore.policy.figures import Figures
from statecore.policy.needs import Needs
from statecore.policy.settings import PolicySettings

# Most sizes between the smallest and the largest.
_BETWEEN = 8


@dataclass(frozen=True, slots=True)
class Ladder:
    """The throughput of a job at its allowed sizes, in rows per second.

    Attributes:
        rates: Throughput at full load, by size, ascending; a selection of many sizes.
        parallelism: The current size.
        arriving: Arrivals.
        needed: Needed throughput: arrivals with headroom, and the backlog in time.
        enough: The smallest size with that throughput; None if no allowed size has it.

    """

    rates: dict[int, float]
    parallelism: int
    arriving: float
    needed: float
    enough: int | None


def ladder(figures: Figures, settings: PolicySettings) -> Ladder | None:
    """Return the throughput of a job at its allowed sizes; None while too little is measured."""
    measured = throughput(figures, align=settings.align)
    if measured is None or figures.arriving is None:
        return None
    needs = Needs(figures, settings, measured)
    needed, sizes = needs.needed(), needs.sizes
    known = sorted({*sizes, figures.parallelism})
    enough = next((size for size in known if measured.rows_per_second(size) >= needed), None)
    step = max(1, (len(sizes) - 1) / _BETWEEN)
    spread = {sizes[round(step * index)] for index in range(_BETWEEN + 1) if round(step * index) < len(sizes)}
    shown = sorted(spread | {sizes[0], sizes[-1], figures.parallelism} | ({enough} if enough else set()))
    rates = {size: measured.rows_per_second(size) for size in shown}
    return Ladder(rates, figures.parallelism, figures.arriving, needed, enough)
