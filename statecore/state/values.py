"""Checks of list elements, common to keyed and operator state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statecore.errors import StateError


def checked_elements(what: str, values: Iterable[Any]) -> list[Any]:
    """Return the elements for a list; StateError when they are not a collection, or one of them is None."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise StateError(
            f"found {values!r} instead of elements for {what}; expected a list; give a list, an empty one for "
            "nothing, or add() a single element"
        )
    checked = list(values)
    if any(value is None for value in checked):
        raise StateError(f"found None among the elements for {what}; expected values; leave missing elements out")
    return checked
