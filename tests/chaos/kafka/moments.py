"""Moments of a Kafka transaction at which a publisher can be made to wait: for a strike at it, or at its broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

VARIABLE = "STATECORE_CHAOS_MOMENTS"
"""Names the folder in which moments are armed."""


class Moment(StrEnum):
    """Moments in order."""

    BEFORE = "before the transaction"
    ROWS_SENT = "with its rows sent"
    MARKER_SENT = "with its marker sent"
    COMMITTED = "before it hears of its commit"


class Moments:
    """What is armed and who waits, by files in a folder.

    Args:
        folder: It exists.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def arm(self, moment: Moment) -> None:
        """Let the publisher that comes to a moment next wait there."""
        self._armed(moment).touch()

    def is_met(self, moment: Moment) -> bool:
        """Return whether a publisher waits, or has died waiting."""
        return self._met(moment).exists()

    def release(self) -> None:
        """Let the publisher go on, wherever it waits, or forget it if it is dead."""
        for moment in Moment:
            self._armed(moment).unlink(missing_ok=True)
            self._met(moment).unlink(missing_ok=True)

    def wait(self, moment: Moment, before: Callable[[], object]) -> None:
        """Wait if the moment is armed, after something that is done only then."""
        if not self._armed(moment).exists():
            return
        before()
        try:
            self._armed(moment).rename(self._met(moment))
        except FileNotFoundError:
            return
        while self.is_met(moment):
            time.sleep(0.02)

    def _armed(self, moment: Moment) -> Path:
        return self._folder / f"{moment.name}.armed"

    def _met(self, moment: Moment) -> Path:
        return self._folder / f"{moment.name}.met"


def moments() -> Moments:
    """Return those of this process's campaign."""
    return Moments(Path(os.environ[VARIABLE]))
