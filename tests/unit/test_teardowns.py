"""Nothing waits forever, not even what cleans up after a test that failed, or that took too long."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

STUCK = """
import threading

import pytest


def stick():
    threading.Event().wait(300)


@pytest.fixture
def stuck():
    yield
    stick()


def test_passes(stuck):
    pass


def test_fails(stuck):
    assert False


def test_cleans_up():
    try:
        stick()
    finally:
        stick()
"""


def test_what_hangs_is_ended_and_so_is_what_cleans_up_after_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(STUCK)
    done = pytester.runpytest_subprocess("-p", "tests.support.teardowns", "-p", "no:xdist", "--timeout", "2")
    done.assert_outcomes(passed=1, failed=2, errors=2)
    assert "(>2.0s)" in done.stdout.str() and done.duration < 300
