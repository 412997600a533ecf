"""The one way to wait in a test: for a condition, never for an amount of time.

A test that sleeps counts on the machine. On a slow one the thing has not happened yet; on a quick one the next thing
has happened, too. Ruff therefore refuses ``time.sleep`` in ``test_*.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 180.0
"""Bounds a wait for something that never comes. It is no expectation of how long things take."""


def wait(condition: Callable[[], T], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Return what a condition gives as soon as that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.05)
    return found
