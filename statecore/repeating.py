"""Repeats a step in a separate thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from statecore.errors import StatecoreError

log = logging.getLogger(__name__)


class Repeating:
    """Repeats a step while the context is open, or from ``start`` until ``stop``; the step itself may call ``stop``.

    A step that fails is repeated like any other. Its error is logged once, until it changes or a step succeeds: what
    the step needs may be down for hours.

    Args:
        name: What is repeated, as the log and the name of the thread say it.
        step: The step.
        every_s: Seconds before each step.
        is_due: Returns whether the step is due. Skipping a step that is not due does not count as its success.

    """

    def __init__(
        self, name: str, step: Callable[[], object], every_s: float, *, is_due: Callable[[], bool] = lambda: True
    ) -> None:
        self._name = name
        self._step = step
        self._every_s = every_s
        self._is_due = is_due
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"statecore-{name}", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Start no further step, and do not wait for the running one."""
        self._stopping.set()

    def close(self) -> None:
        """Start no further step, and wait for the running one."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        said = ""
        while not self._stopping.wait(self._every_s):
            try:
                if self._is_due():
                    self._step()
                    said = ""
            except Exception as error:
                if str(error) != said:
                    expected = isinstance(error, StatecoreError)
                    log.error("%s failed; retrying: %s", self._name, error, exc_info=not expected)
                said = str(error)
