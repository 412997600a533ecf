"""Keeps Python's cyclic garbage collector away from state: a higher threshold, and ``gc.freeze``."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 200_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect once in many new objects instead of every few hundred.

    Reference counts alone free records, keys and state; visiting each of them in every collection costs a fifth of an
    epoch. Reference cycles of a user's function are still collected.
    """
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def freeze_state() -> None:
    """Exclude all objects in memory from later collections.

    Spark's Python workers run a full collection after every task. It would visit each dictionary of state, so the cost
    of an epoch would grow with the state. Reference cycles of the running task stay in memory forever, so call this
    only when much of the state is new.
    """
    gc.freeze()
