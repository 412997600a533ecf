"""Progress of long work, in steps."""

from __future__ import annotations

from collections.abc import Callable

from statecore.queries.transfer import Report

Done = Callable[[], None]
"""Called when a step is done."""


def steps(report: Report, total: int) -> Done:
    """Return what counts the steps that are done, and reports them."""
    numbers = iter(range(1, total + 1))
    return lambda: report(next(numbers, total), total)


def uncounted() -> None:
    """Report nothing: for steps that nobody could count beforehand."""
