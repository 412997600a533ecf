"""Where a job stands between its limits: what each size would do, and what arrives."""

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
    """What a job can do at its allowed sizes, in rows per second.

    Attributes:
        rates: Rows a second at full load, by size, ascending; some sizes where there are many.
        parallelism: The present size.
        arriving: Rows that arrive.
        needed: Rows that the job needs to process: what arrives with headroom, and the backlog in time.
        enough: The smallest size that does that; None when no allowed one does.

    """

    rates: dict[int, float]
    parallelism: int
    arriving: float
    needed: float
    enough: int | None


def ladder(figures: Figures, settings: PolicySettings) -> Ladder | None:
    """Return where a job stands; None while too little is measured to say."""
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
