"""Parallelisms at which key groups, or the partitions of a source, spread evenly over the subtasks.

The busiest of p subtasks has ``ceil(G / p)`` of G key groups, and reads ``ceil(P / p)`` of P partitions. A larger size
with the same two numbers costs more and does no more. A size at which the busiest has much more than the mean pays for
idle subtasks: of 128 key groups, the busiest of 9 subtasks has 15, the mean is 14.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

# Largest share of the busiest subtask, relative to the mean.
_UNEVEN = 1.05
# An uneven size is omitted only if an even one is at most this many times as large: few key groups have few even sizes,
# and a job needs sizes between them.
_NEAR = 1.25


def aligned(sizes: Sequence[int], key_groups: int, partitions: int | None) -> list[int]:
    """Return the sizes that spread evenly, and the first size.

    A size is even if its busiest subtask has fewer key groups, or fewer partitions, than at any smaller size, and of
    these at most 5 % more than the mean. An uneven size with fewer stays if no even one is at most a quarter larger,
    such as at the upper limit.

    Args:
        sizes: Parallelisms in ascending order, at most ``key_groups``.
        key_groups: Number of key groups.
        partitions: Number of partitions of the source; None when unknown.

    """
    fewer: list[int] = []
    even: list[int] = []
    # The share of the busiest never grows with the size, so comparing with the next smaller size compares with all.
    for smaller, size in pairwise(sizes):
        gained = [parts for parts in (key_groups, partitions or 1) if busiest(parts, size) < busiest(parts, smaller)]
        if gained:
            fewer.append(size)
        if any(busiest(parts, size) * size <= _UNEVEN * parts for parts in gained):
            even.append(size)
    kept = (size for size in fewer if size in even or not any(size < each <= _NEAR * size for each in even))
    return [*sizes[:1], *kept]


def busiest(parts: int, parallelism: int) -> int:
    """Return the number of parts of the busiest subtask."""
    return -(-parts // parallelism)
