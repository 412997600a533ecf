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

_limits = pytest.StashKey[Any]()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    item.stash[_limits] = settings
    done = yield
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, min(AGAIN_S, settings.timeout))
    return done


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    if _limits in item.stash:
        item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[_limits])
    return (yield)
