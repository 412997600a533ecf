"""A teardown has a time limit, too, also that of a test that failed: nothing in CI may wait forever.

pytest-timeout stops its clock at a failure, for those who then look around in a debugger.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

_limits = pytest.StashKey[object]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> None:
    item.stash[_limits] = settings


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    if _limits in item.stash:
        item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[_limits])
    return (yield)
