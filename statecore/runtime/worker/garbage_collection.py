"""How often Python looks for garbage that refers to itself, and where: not in the state."""

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


def leave_out() -> None:
    """Leave all that is in memory now out of every later look.

    Spark's Python workers look through all their memory after every task, and would go through each dictionary of state
    that the task has touched: what an epoch costs would grow with the state. Garbage of the running task that refers to
    itself stays in memory, so this is for when much state is new, and not for every task.
    """
    gc.freeze()
