"""Coverage is what the named examples cover: these run without the tracer, which makes a test up to five times slower.

* Property tests: what a random example happens to reach would make the figure differ from run to run.
* Tests of what uses statecore, in the folders of ``USERS``.
* Long simulations, which are marked ``untraced``.
* Of a test with many parameters, those after the first ``EXAMPLES``: they reach few other lines.
* pytest itself, where it only gives tests to workers.

The mark of pytest-cov, ``no_cover``, has no effect in a worker of pytest-xdist: the
worker has two collectors, and stopping the upper one resumes the other.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext

import pytest
from hypothesis import is_hypothesis_test

USERS = {"benchmarks", "chaos", "docs", "examples"}
EXAMPLES = 3
_further = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "untraced: takes no part in the measurement of coverage")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[tuple[object, str]] = Counter()
    for item in items:
        test = (item.parent, getattr(item, "originalname", item.name))
        seen[test] += 1
        item.stash[_further] = seen[test] > EXAMPLES


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.pluginmanager.has_plugin("dsession"):
        sys.settrace(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with _untraced() if _is_untraced(item) else nullcontext():
        return (yield)


@contextmanager
def _untraced() -> Iterator[None]:
    tracer, tracer_of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        threading.settrace(tracer_of_threads)


def _is_untraced(item: pytest.Item) -> bool:
    return (
        item.get_closest_marker("untraced") is not None
        or item.stash[_further]
        or is_hypothesis_test(getattr(item, "obj", None))
        or not USERS.isdisjoint(item.path.parts[len(item.config.rootpath.parts) :])
    )
