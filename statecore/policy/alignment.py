"""Parallelisms at which key groups, or the partitions of a source, spread evenly over the subtasks.

The busiest of p subtasks has ``ceil(G / p)`` of G key groups, and as a reader ``ceil(P / p)`` of P partitions. A size
that leaves both as they are at a smaller size costs more, and does no more. A size at which the busiest has much more
than the mean pays for subtasks that wait for it: of 128 key groups, the busiest of 9 subtasks has 15, of 14.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

# How much more than the mean the busiest subtask may have.
_UNEVEN = 1.05
# An uneven size is left out only where an even one is at most so many times as large: few key groups divide evenly by
# few sizes, and a job needs sizes between them.
_NEAR = 1.25


def aligned(sizes: Sequence[int], key_groups: int, partitions: int | None) -> list[int]:
    """Return the sizes that spread evenly; the first stays, and with every uneven one the work it does.

    A size is even if its busiest subtask has fewer key groups, or fewer partitions, than at any smaller size, and of
    these at most 5 % more than the mean. One that is fewer but uneven stays where no even one is at most a quarter
    larger, such as at the upper limit.

    Args:
        sizes: Parallelisms in ascending order, at most ``key_groups``.
        key_groups: Number of key groups.
        partitions: Number of partitions of the source; None when unknown.

    """
    fewer: list[int] = []
    even: list[int] = []
    # What the busiest has never grows with the size, so a comparison with the next smaller size is one with all.
    for smaller, size in pairwise(sizes):
        gained = [parts for parts in (key_groups, partitions or 1) if busiest(parts, size) < busiest(parts, smaller)]
        if gained:
            fewer.append(size)
        if any(busiest(parts, size) * size <= _UNEVEN * parts for parts in gained):
            even.append(size)
    kept = (size for size in fewer if size in even or not any(size < each <= _NEAR * size for each in even))
    return [*sizes[:1], *kept]


def busiest(parts: int, parallelism: int) -> int:
    """Return how many parts the busiest subtask has."""
    return -(-parts // parallelism)
