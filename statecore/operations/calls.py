"""Calls beside each other, so that one that hangs keeps no other waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Calls:
    """Makes calls in threads, at most one of a name at a time.

    Args:
        threads: How many calls run at once; the others wait for their turn.
        name: Prefix of the threads' names.

    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._pending: dict[str, tuple[Future[None], float]] = {}
        self._begun: list[Future[None]] = []

    def begin(self, name: str, call: Callable[[], None]) -> None:
        """Make a call, which must not raise; skip it while the last one of this name is under way."""
        last = self._pending.get(name)
        if last is None or last[0].done():
            future = self._pool.submit(call)
            self._pending[name] = future, time.monotonic()
            self._begun.append(future)

    def wait(self, timeout_s: float) -> None:
        """Wait for the calls that began since the last wait, but not for long."""
        wait(self._begun, timeout_s)
        self._begun.clear()

    def hung(self, after_s: float) -> dict[str, float]:
        """Return the calls that have been under way for so long, with their seconds."""
        now_s = time.monotonic()
        pending = {name: now_s - begun_s for name, (future, begun_s) in self._pending.items() if not future.done()}
        return {name: seconds for name, seconds in pending.items() if seconds >= after_s}

    def close(self) -> None:
        """Begin no further call; those under way go on."""
        self._pool.shutdown(wait=False, cancel_futures=True)
