"""What holds for the elements of every list, keyed or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statecore.errors import StateError


def checked_elements(what: str, values: Iterable[Any] | None) -> list[Any]:
    """Return the elements for a list.

    Raises:
        StateError: There are none, or one of them is None.

    """
    if values is None:
        raise StateError(f"found None instead of elements for {what}; expected a list; give an empty one for nothing")
    checked = list(values)
    if any(value is None for value in checked):
        raise StateError(f"found None among the elements for {what}; expected values; leave missing elements out")
    return checked
