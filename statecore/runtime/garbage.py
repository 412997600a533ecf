"""How often Python looks for garbage that refers to itself while a subtask works."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 200_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for such garbage once in many new objects, and not in every few hundred.

    Records, keys and state are told from garbage by their reference counts alone; a look at each of them on the way
    costs a fifth of an epoch. What a user's function leaves behind is still found.
    """
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
