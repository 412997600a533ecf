"""What holds for the values of every kind of state."""

from __future__ import annotations

from typing import Any


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
