"""A step that is repeated on a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from statecore.errors import CatalogError
from statecore.repeating import Repeating
from tests.support.waiting import wait


class Steps:
    """Fails with these errors, one after the other; None for a step that succeeds."""

    def __init__(self, *errors: Exception | None) -> None:
        self.made = 0
        self._errors: Iterator[Exception | None] = chain(errors, repeat(None))

    def __call__(self) -> None:
        self.made += 1
        error = next(self._errors)
        if error is not None:
            raise error


def test_an_error_is_said_once_until_it_changes_or_a_step_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    gone, slow = CatalogError("gone"), OSError("slow")
    steps = Steps(gone, gone, gone, slow, slow, None, slow)
    with caplog.at_level(logging.INFO), Repeating("the look", steps, 0.001):
        wait(lambda: steps.made > 7, "the steps")
    assert [each.message for each in caplog.records] == [
        "the look failed; retrying: gone", "the look failed; retrying: slow", "the look failed; retrying: slow",
    ]  # fmt: skip
    # A trace says nothing about an error of ours that the words do not say.
    assert [bool(each.exc_info) for each in caplog.records] == [False, True, True]


def test_no_step_begins_once_the_context_is_left() -> None:
    steps = Steps()
    with Repeating("steps", steps, 0.0) as repeating:
        wait(lambda: steps.made > 0, "a step")
    made = steps.made
    assert not repeating._thread.is_alive() and steps.made == made


def test_a_step_may_end_itself() -> None:
    made = []

    def last() -> None:
        made.append(1)
        repeating.stop()

    repeating = Repeating("the last", last, 0.0)
    with repeating:
        wait(lambda: not repeating._thread.is_alive(), "the end")
    assert made == [1]
