"""What holds for the values of every kind of state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statecore.errors import StateError


def deep_copy(value: Any) -> Any:
    """Return a value that later changes in place cannot reach, at any depth."""
    if isinstance(value, list):
        return [deep_copy(item) for item in value]
    if isinstance(value, dict):
        return {key: deep_copy(item) for key, item in value.items()}
    if isinstance(value, tuple):
        copies = map(deep_copy, value)
        return type(value)._make(copies) if hasattr(value, "_make") else tuple(copies)
    return value


def checked_elements(what: str, values: Iterable[Any]) -> list[Any]:
    """Return the elements for a list.

    Raises:
        StateError: One of them is None.

    """
    checked = list(values)
    if any(value is None for value in checked):
        raise StateError(f"found None among the elements for {what}; expected values; leave missing elements out")
    return checked
