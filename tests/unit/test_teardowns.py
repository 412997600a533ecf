"""Nothing waits forever, not even what a failed test leaves to its teardown."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

STUCK = """
import threading

import pytest


@pytest.fixture
def stuck():
    yield
    threading.Event().wait(20)


def test_it(stuck):
    assert {passes}
"""


@pytest.mark.parametrize("passes", [True, False])
def test_a_teardown_that_never_ends_is_ended(pytester: pytest.Pytester, passes: bool) -> None:
    pytester.makepyfile(STUCK.format(passes=passes))
    done = pytester.runpytest_subprocess("-p", "tests.support.teardowns", "-p", "no:xdist", "--timeout", "1")
    done.assert_outcomes(passed=passes, failed=not passes, errors=1)
    done.stdout.fnmatch_lines(["*Timeout*1.0s*"])
