"""Nothing in CI may wait forever: a time limit ends what hangs, what cleans up after it, and the teardown.

pytest-timeout strikes once, and stops its clock at a failure, for those who then look around in a debugger.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any

import pytest

AGAIN_S = 300.0
"""Time that a test has to clean up after its limit, before it is ended once more."""
TEARDOWN_S = 600.0
"""Longest limit of a teardown, also where that of the test is an hour."""

_limits = pytest.StashKey[Any]()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    done = yield
    # Otherwise pytest-timeout has no handler for the signal.
    if settings.method == "signal" and not settings.func_only:
        item.stash[_limits] = settings
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, min(AGAIN_S, settings.timeout))
    return done


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    if (limits := item.stash.get(_limits, None)) is not None:
        limits = limits._replace(timeout=min(limits.timeout, TEARDOWN_S))
        item.config.hook.pytest_timeout_set_timer(item=item, settings=limits)
    return (yield)
