"""Parallelisms at which the busiest subtask has less to do than at any smaller one.

The busiest of p subtasks has ``ceil(G / p)`` of G key groups, and as a reader ``ceil(P / p)`` of P partitions. A size
that leaves both as they are at a smaller size costs more, and does no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def aligned(sizes: Sequence[int], key_groups: int, partitions: int | None) -> list[int]:
    """Return those of ascending sizes at which the busiest subtask or reader has less; the first stays.

    Args:
        sizes: Parallelisms, at most ``key_groups``.
        key_groups: Number of key groups.
        partitions: Number of partitions of the source; None when unknown.

    """

    def most(parallelism: int) -> tuple[int, int]:
        return busiest(key_groups, parallelism), busiest(partitions or 1, parallelism)

    # Neither number grows with the size, so a comparison with the next smaller size is one with all of them.
    return [*sizes[:1], *(size for smaller, size in pairwise(sizes) if most(size) != most(smaller))]


def busiest(parts: int, parallelism: int) -> int:
    """Return how many parts the busiest subtask has."""
    return -(-parts // parallelism)
