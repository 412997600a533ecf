"""Runs calls in parallel threads, so that one that hangs does not delay the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence


class BackgroundCalls:
    """Makes calls in threads, at most one of a name at a time; the end of the process waits for none of them.

    Args:
        at_once: How many calls run at once; the others wait for their turn.
        name: Name of the threads.

    """

    def __init__(self, at_once: int, name: str) -> None:
        self._turns = threading.Semaphore(at_once)
        self._name = name
        self._closed = False
        self._pending: dict[str, tuple[threading.Thread, float]] = {}
        self._begun: list[threading.Thread] = []

    def begin(self, name: str, call: Callable[[], None]) -> None:
        """Make a call, which must not raise; skip it while the previous one of this name runs."""
        last = self._pending.get(name)
        if last is None or not last[0].is_alive():
            # A thread of a pool would keep the process alive.
            thread = threading.Thread(target=self._run, args=(call,), name=self._name, daemon=True)
            self._pending[name] = thread, time.monotonic()
            self._begun.append(thread)
            thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for the calls started since the previous wait."""
        _join(self._begun, timeout_s)
        self._begun.clear()

    def hung(self, after_s: float) -> dict[str, float]:
        """Return the calls that have run for at least ``after_s``, with their seconds."""
        now_s = time.monotonic()
        pending = {name: now_s - begun_s for name, (thread, begun_s) in self._pending.items() if thread.is_alive()}
        return {name: seconds for name, seconds in pending.items() if seconds >= after_s}

    def close(self, timeout_s: float) -> None:
        """Begin no further call, and wait up to ``timeout_s`` for the running ones."""
        self._closed = True
        _join([thread for thread, _ in self._pending.values()], timeout_s)

    def _run(self, call: Callable[[], None]) -> None:
        with self._turns:
            if not self._closed:
                call()


def _join(threads: Sequence[threading.Thread], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
