"""Progress of long work: how much is done, of how much."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[int, int], None]
"""Takes the number of files or steps done, and of all."""

Done = Callable[[], None]
"""Called when a step is done."""


def steps(report: Report, total: int) -> Done:
    """Return what counts the steps that are done, and reports them."""
    numbers = iter(range(1, total + 1))
    return lambda: report(next(numbers, total), total)


def uncounted() -> None:
    """Report nothing: for steps that nobody could count beforehand."""


def quiet(done: int, total: int) -> None:
    """Report nothing."""
