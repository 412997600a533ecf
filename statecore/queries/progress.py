"""Progress of long work: how much is done, of how much."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[int, int], None]
"""Called with the number of files or steps done, and of all."""

Done = Callable[[], None]
"""Called when a step is done."""


def steps(report: Report, total: int) -> Done:
    """Return a function that counts one more step and reports the count."""
    numbers = iter(range(1, total + 1))
    return lambda: report(next(numbers, total), total)


def uncounted() -> None:
    """Report nothing: for steps whose total is unknown."""


def quiet(done: int, total: int) -> None:
    """Report nothing."""
