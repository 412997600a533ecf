"""The most frequent items of a stream, with a bounded number of counters.

The sketch is Space-Saving (Metwally et al., "Efficient computation of frequent and top-k elements in data streams",
2005): an item without a counter takes the lowest one over, count and all. So a counter has at most
``items seen / counters`` too much, and knows how much.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class SpaceSaving(Generic[Item]):
    """The sketch.

    Args:
        counters: Most items that have a counter.

    """

    def __init__(self, counters: int) -> None:
        self._most = counters
        # Count, and how much of it may be other items'.
        self._counters: dict[Item, tuple[int, int]] = {}

    def add(self, item: Item) -> None:
        """Count an item once."""
        count, over = self._counters.get(item, (0, 0))
        if not count and len(self._counters) == self._most:
            lowest = min(self._counters, key=self._counters.__getitem__)
            count, _ = self._counters.pop(lowest)
            over = count
        self._counters[item] = count + 1, over

    def counts(self) -> Iterator[tuple[Item, int]]:
        """Yield each item with a counter, and how often it was counted at least."""
        for item, (count, over) in self._counters.items():
            yield item, count - over
