"""Evictors: which elements of a window remain when it fires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statecore.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class CountEvictor:
    """Keeps the newest elements of a window, up to a number, and removes the others before it fires.

    Attributes:
        max_count: Number of elements; with 0 the function gets none, as in Flink.

    Raises:
        ConfigurationError: ``max_count`` is not an integer, or negative.

    """

    max_count: int

    def __post_init__(self) -> None:
        if type(self.max_count) is not int or self.max_count < 0:
            raise ConfigurationError(
                f"found max_count={self.max_count!r} for an evictor; expected 0 or more; pass the number of "
                "elements to keep"
            )

    def left(self, elements: list[Any]) -> list[Any]:
        """Return the elements that remain."""
        return elements[max(0, len(elements) - self.max_count) :]
